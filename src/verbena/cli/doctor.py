"""`verbena doctor`: checks this machine and prints the command that fixes each problem."""

from __future__ import annotations

import argparse

from verbena.cli import text
from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena doctor                     check kernel, devices, limits; a transfer on every device
  verbena doctor --provider shm      run transfers on the devices of shm only
  verbena doctor --peer db1:7471     also test the path to another node, wire by wire
  verbena doctor --fix > fix.sh      print the fixes as a script; read it before you run it
  verbena doctor --json              a list of {check, verdict, finding, reason, remedy}

OK: works. WARN: works, but could be better. ERROR: does not work.
exit status: 0 without an ERROR (also with a WARN), 1 with one, 2 wrong usage
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "doctor",
        description="Checks this machine for RDMA and runs a real transfer on every device.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--provider",
        default="",
        metavar="NAME",
        help="transfer on this provider or provider:device only",
    )
    parser.add_argument(
        "--timeout",
        type=text.parse_seconds,
        default=20.0,
        metavar="SECONDS",
        help="time limit for the transfer on one device (default: 20)",
    )
    parser.add_argument(
        "--peer",
        default="",
        metavar="HOST:PORT",
        help="also test the path to the node that listens there",
    )
    parser.add_argument("--fix", action="store_true", help="print the fixes as a script; nothing is run")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_config()
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.cli.checks import report

    return report.run(options)
