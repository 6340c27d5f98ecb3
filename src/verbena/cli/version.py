"""`verbena version`: prints the version."""

from __future__ import annotations

import argparse
import json
import platform

from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena version
  verbena version --json        also the version of Python and the platform
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser("version", description="Prints the version of Verbena.", epilog=EPILOG)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena._version import __version__

    if options.json:
        found = {"verbena": __version__, "python": platform.python_version(), "platform": platform.platform()}
        print(json.dumps(found))
    else:
        print(f"verbena {__version__}")
    return 0
