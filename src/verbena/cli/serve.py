"""`verbena serve`: runs the key-value store for Redis and Valkey clients and for sessions."""

from __future__ import annotations

import argparse
import asyncio

from verbena.cli.help.parser import Parser
from verbena.cli.service import keep_files_private
from verbena.config.flags import given_flags
from verbena.config.load import load

EPILOG = """\
examples:
  verbena serve                                             all defaults; then: redis-cli ping
  verbena serve --port 7000 --kv-maxmemory 1GiB
  verbena serve --kv-persistence-dir /var/lib/verbena       keep the data on disk
  verbena serve --config store.toml
"""
USUAL = (
    "kv.listen_address",
    "kv.maxmemory",
    "kv.persistence.dir",
    "kv.persistence.fsync",
    "kv.password_file",
    "replication.replicaof",
    "metrics.listen",
)
NOTES = """\
Every configuration key has a flag: `verbena config reference KEY` prints it. Keys with a secret have none:
set them in the file, or as a variable such as VERBENA_KV_PASSWORD.

SIGTERM, SIGINT or SHUTDOWN: remove sockets, exit with status 0.
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "serve",
        description="Runs a key-value store for Redis and Valkey clients, and for sessions.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "--port", metavar="PORT", help="TCP port for clients (default: 6379); short for --kv-port"
    )
    parser.add_argument(
        "--commands",
        action="append",
        default=[],
        metavar="MODULE",
        help="Python module or file with additional commands",
    )
    parser.add_config(*USUAL, first=("kv", "kv.persistence", "replication", "cluster"))
    return parser


def run(options: argparse.Namespace) -> int:
    flags = given_flags(options)
    if options.port is not None:
        flags.setdefault("kv.port", options.port)
    if options.commands:
        flags["kv.commands"] = ",".join(filter(None, (flags.get("kv.commands", ""), *options.commands)))
    keep_files_private()
    config = load(options.config, flags=flags)
    from verbena.cli.store import server  # native code, which help does not need

    return asyncio.run(server.serve(config))
