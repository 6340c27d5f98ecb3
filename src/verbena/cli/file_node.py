"""`verbena file-node`: exports a folder to sessions, for the fsspec file system."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from verbena.cli.help.parser import Parser
from verbena.cli.safety import session_note
from verbena.cli.service import add_listen_flag, keep_files_private, stop_signal, stopped_by
from verbena.config import Config
from verbena.config.flags import load_with_flags
from verbena.errors import setup_error

if TYPE_CHECKING:
    from verbena.integrations.file_server import FileServer

EPILOG = """\
examples:
  verbena file-node data                        read access to data/ for local programs
  verbena file-node data --writable             write access too
  verbena file-node data --listen 0.0.0.0:7471  for others; needs a secret in verbena.toml
"""
NOTES = """\
Programs open verbena://HOST:PORT/PATH with fsspec, as pandas, Dask and Arrow do. Paths cannot leave the
folder, not even through symbolic links. Every configuration key has a flag: `verbena config reference KEY`
prints it.

SIGTERM or SIGINT: close sessions, drop unfinished uploads, exit with status 128 + n
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "file-node",
        description="Serves the files of a folder to programs that open verbena:// URLs (fsspec).",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument("folder", metavar="DIR", help="the folder to export")
    parser.add_argument(
        "--writable", action="store_true", help="allow clients to create, change and remove files"
    )
    add_listen_flag(parser)
    parser.add_config("tls.certificate", "metrics.listen")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.integrations.file_server import FileServer  # native code, which help does not need

    keep_files_private()
    try:
        server = FileServer(options.folder, writable=options.writable)
    except OSError as error:
        raise setup_error(
            "invalid_argument", operation="export a folder", detail=str(error), errno=error.errno
        ) from error
    return asyncio.run(_serve(load_with_flags(options), server, options.listen))


async def _serve(config: Config, server: FileServer, listen: str) -> int:
    from verbena import transport
    from verbena.transport.configured import configure_log

    stopped = stop_signal()
    configure_log(config)
    try:
        async with transport.listen(listen, handlers=server.handlers, config=config) as listener:
            access = "read-write" if server.writable else "read-only"
            print(f"file node at verbena://{listener.address}/: {server.root}, {access}", end="")
            print(f", on {', '.join(listener.wires)}, pid {os.getpid()}", flush=True)
            if note := session_note(config):
                print(f"  note: {note}", flush=True)
            number = await stopped
    finally:
        server.close()
    return stopped_by(number)
