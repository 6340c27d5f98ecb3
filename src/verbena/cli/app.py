"""The entry point: parses arguments, runs one subcommand, and maps errors and signals to text and exit
status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

from verbena.errors import VerbenaError

# The one list of subcommands. Each is a module of that name in this folder, imported on demand.
COMMANDS = (
    "serve",
    "cli",
    "devices",
    "doctor",
    "explain",
    "config",
    "cert",
    "bench",
    "demo",
    "shards",
    "top",
    "failover-drill",
    "memory-node",
    "file-node",
    "kv",
    "registry",
)

EPILOG = """\
examples:
  verbena serve                                     run a key-value store; then: redis-cli ping
  verbena cli info server                           send one command to a store; without one, a prompt
  verbena devices                                   list usable devices and why others are not usable
  verbena doctor                                    check this machine, with a transfer on each device
  verbena explain RETRY_EXC_ERR                     explain an error by its name or a line of a log
  verbena config check                              check verbena.toml
  verbena cert init                                 create a certificate authority for development
  verbena demo                                      show two processes that share an array
  verbena memory-node --size 1GiB                   provide memory to other programs
  verbena file-node DIR                             export a folder as verbena://HOST:PORT/…
  verbena bench latency --provider shm --size 64    measure round trips against a bare ring
  verbena top HOST:PORT                             show sessions, rates and latencies of a running node
  verbena failover-drill                            break a wire on purpose and watch the recovery
  verbena kv check DIR                              check the files of a store
  verbena shards move 0-99 n2                       move slots of a cluster while they are in use
  verbena registry                                  run a container registry on 127.0.0.1:5000

exit status: 0 success, 1 failure, 2 wrong usage, 128 + n ended by signal n
"""


class Terminated(BaseException):
    """SIGTERM as an exception, so that context managers and finally blocks run."""


class _Version(argparse.Action):
    """Imports the version only when --version is given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from verbena import __version__

        print(f"verbena {__version__}")
        parser.exit()


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Builds the parser for the given subcommands. The reference page and the tests read it too."""
    parser = argparse.ArgumentParser(
        prog="verbena",
        description="RDMA for Python: one verbs model on several wires.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        command = import_module(f"verbena.cli.{name.replace('-', '_')}")
        command.add_parser(commands).set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status; a failure is printed as text, without a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    named = [word for word in words[:1] if word in COMMANDS]
    options = build_parser(named or COMMANDS).parse_args(words)
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except VerbenaError as error:
        print(f"verbena: {error}", file=sys.stderr)
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
