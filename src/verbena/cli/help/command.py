"""`verbena help`: prints the page of all commands, or the help of one."""

from __future__ import annotations

import argparse

from verbena.cli.help.catalog import COMMANDS
from verbena.cli.help.page import page
from verbena.cli.help.parser import Parser, print_page

EPILOG = """\
examples:
  verbena help                     all commands
  verbena help serve               the options of `verbena serve` that are used most
  verbena help serve --all         every option
  verbena help shards move         one action of a command
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser("help", description="Prints the help of a command.", epilog=EPILOG)
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND", help="a command, and an action of it (default: all commands)"
    )
    parser.add_argument("--all", action="store_true", help="every option of the command")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    if not options.words:
        print_page(page())
        return 0
    from verbena.cli.app import build_parser

    name, *actions = options.words
    if name not in COMMANDS:
        options.parser.no_command(name, COMMANDS)
    found = build_parser([name]).command(name)
    for action in actions:
        found = found.command(action)
    print_page(found.format_full_help() if options.all else found.format_help())
    return 0
