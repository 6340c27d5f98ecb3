"""The entry point: parses arguments, runs one command, and maps errors and signals to text and exit
status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

from verbena.cli.help.catalog import COMMANDS, SUMMARIES, module_of
from verbena.cli.help.page import page
from verbena.cli.help.parser import Parser, print_page
from verbena.cli.output.failure import print_failure
from verbena.errors import VerbenaError


class Terminated(BaseException):
    """SIGTERM as an exception, so that context managers and finally blocks run."""


class _Version(argparse.Action):
    """Imports the version only when --version is given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from verbena import __version__

        print(f"verbena {__version__}")
        parser.exit()


class _Verbena(Parser):
    """The parser of `verbena` itself; its help is the page of all commands."""

    def format_help(self) -> str:
        return page()

    def format_full_help(self) -> str:
        return page()

    @property
    def summaries(self) -> dict[str, str]:
        return SUMMARIES


def build_parser(names: Sequence[str] = COMMANDS) -> Parser:
    """Builds the parser for the given commands. Completion, the reference page and the tests read it too."""
    parser = _Verbena(prog="verbena")
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in names:
        command = import_module(module_of(name))
        command.add_parser(commands).set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status; a failure is printed as text, without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = next((word for word in words if word != "--no-color"), "")
    if not name:
        print_page(page())
        return 0
    parser = build_parser([name] if name in COMMANDS else ())
    if not name.startswith("-") and name not in COMMANDS:
        parser.no_command(name, COMMANDS)
    options = parser.parse_args(words)
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except VerbenaError as error:
        print_failure(error, as_json=bool(vars(options).get("json")))
        return 1
    except BrokenPipeError:
        # The reader of our output has exited; redirect buffered output so that flushing at exit does not fail
        # again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return _interrupted(signal.SIGINT)
    except Terminated:
        return _interrupted(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupted(number: signal.Signals) -> int:
    print(f"verbena: ended by {number.name}", file=sys.stderr)
    return 128 + number


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
