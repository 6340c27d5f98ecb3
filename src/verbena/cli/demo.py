"""`verbena demo`: one process exposes an array; another reads and writes it one-sided and prints the
latencies."""

from __future__ import annotations

import argparse

from verbena.cli import text
from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena demo                 five seconds over shared memory
  verbena demo --seconds 1
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "demo",
        description="One process exposes an array; another reads and writes it while the owner is idle.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--seconds", type=text.parse_seconds, default=5.0, help="duration in seconds (default: 5)"
    )
    parser.add_argument("--provider", default="shm", help="provider or provider:device (default: shm)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.cli.measure import sharing

    return sharing.run(options)
