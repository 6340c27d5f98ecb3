"""`verbena memory-node`: provides this machine's memory to sessions, for far.Array."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from verbena.cli import text
from verbena.cli.help.parser import Parser
from verbena.cli.safety import require_huge_pages, require_size, session_note
from verbena.cli.service import add_listen_flag, keep_files_private, stop_signal, stopped_by
from verbena.config import Config
from verbena.config.flags import load_with_flags
from verbena.config.kinds import InvalidValue, Size

EPILOG = """\
examples:
  verbena memory-node --size 1GiB                         for local programs
  verbena memory-node --size 64GiB --listen 0.0.0.0:7471  for others; needs a secret in verbena.toml
  verbena memory-node --config node.toml --network-rdma-huge-pages
"""
NOTES = """\
Programs allocate memory with far.zeros(session, shape, dtype). Unnamed memory is freed when the session
ends. Every configuration key has a flag: `verbena config reference KEY` prints it.

SIGTERM or SIGINT: close sessions, free the memory, exit with status 128 + n
"""
SIZE = Size(4096, 1 << 50)


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "memory-node",
        description="Provides memory that programs read and write one-sided, as arrays (verbena.far).",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "--size", type=_size, default=1 << 30, metavar="SIZE", help="size of the memory (default: 1GiB)"
    )
    add_listen_flag(parser)
    parser.add_config("network.rdma.huge_pages", "metrics.listen")
    return parser


def run(options: argparse.Namespace) -> int:
    keep_files_private()
    return asyncio.run(_serve(load_with_flags(options), options.size, options.listen))


async def _serve(config: Config, size: int, listen: str) -> int:
    from verbena import transport  # native code, which help does not need
    from verbena.far import MemoryNode
    from verbena.transport.configured import configure_log, settings_from

    stopped = stop_signal()
    require_size("--size", size)
    require_huge_pages(config, size)
    configure_log(config)
    node = await asyncio.to_thread(transport.Node, settings_from(config), by_loop=True)
    try:
        memory = await asyncio.to_thread(MemoryNode, node, size)
        listener = await transport.listen(listen, handlers=memory.handlers, node=node, config=config)
        async with listener:
            wires = ", ".join(listener.wires)
            print(f"memory node at {listener.address}: {text.size(size)} on {wires}, pid {os.getpid()}")
            if note := session_note(config):
                print(f"  note: {note}")
            sys.stdout.flush()
            number = await stopped
            served = memory.stat()
            print(f"shutting down: {len(listener.sessions)} sessions, {served['allocations']} allocations")
        await memory.close()
    finally:
        await asyncio.to_thread(node.close)
    return stopped_by(number)


def _size(argument: str) -> int:
    try:
        return SIZE.from_toml(argument)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(f"must be {SIZE.allowed}, {error}") from error
