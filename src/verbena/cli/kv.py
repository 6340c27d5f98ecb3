"""`verbena kv`: checks and repairs the files of a store, and benchmarks servers."""

from __future__ import annotations

import argparse
from pathlib import Path

from verbena.cli.help.parser import Parser
from verbena.cli.measure import kv_bench

EPILOG = """\
examples:
  verbena kv check /var/lib/verbena             read every record; change nothing
  verbena kv repair /var/lib/verbena            truncate the log at damage, after confirmation
  verbena kv repair --yes /var/lib/verbena      without confirmation
  verbena kv bench                              compare a store with redis-server

exit status: 0 all files are intact (or were repaired), 1 damage found, 2 wrong usage
"""
NOTES = """\
A server removes the unfinished end that a crash leaves. Only damage that a crash does not explain needs
`repair`: records behind it are removed from the store and kept in a file that ends in .cut-OFFSET.
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "kv",
        description="Checks or repairs the snapshot and log of a store, or benchmarks servers.",
        epilog=EPILOG,
        notes=NOTES,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, help="what to do")
    check = actions.add_parser(
        "check",
        help="read every record and report damage",
        description="Reads every record of snapshot and log. Needs a stopped server; changes nothing.",
    )
    check.add_argument("directory", metavar="DIR", type=Path, help="the store's directory")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.set_defaults(action=_check)
    repair = actions.add_parser(
        "repair",
        help="truncate the log at the first damaged record",
        description="Truncates the log at the first damaged record and keeps the rest in a file beside it.",
    )
    repair.add_argument("directory", metavar="DIR", type=Path, help="the store's directory")
    repair.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    repair.add_argument("--json", action="store_true", help="print one JSON document; needs --yes")
    repair.set_defaults(action=_repair, parser=repair)
    kv_bench.add_parser(actions)
    return parser


def run(options: argparse.Namespace) -> int:
    status: int = options.action(options)
    return status


def _check(options: argparse.Namespace) -> int:
    from verbena.cli.store import files

    return files.check(options)


def _repair(options: argparse.Namespace) -> int:
    if options.json and not options.yes:
        options.parser.error("--json needs --yes")
    from verbena.cli.store import files

    return files.repair(options)
