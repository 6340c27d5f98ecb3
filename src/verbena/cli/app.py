"""The entry point: parses, runs one subcommand, and turns errors and signals into text and an exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from verbena import __version__
from verbena.cli import (
    bench,
    cert,
    cli,
    config,
    demo,
    devices,
    doctor,
    explain,
    failover_drill,
    file_node,
    kv,
    memory_node,
    registry,
    serve,
    shards,
    top,
)
from verbena.errors import VerbenaError

# The one list of subcommands.
COMMANDS = (
    serve,
    cli,
    devices,
    doctor,
    explain,
    config,
    cert,
    bench,
    demo,
    shards,
    top,
    failover_drill,
    memory_node,
    file_node,
    kv,
    registry,
)

EPILOG = """\
examples:
  verbena serve                                     a key-value store; then: redis-cli ping
  verbena cli info server                           one command to a store; without one, a prompt
  verbena devices                                   what this machine can do, and why not more
  verbena doctor                                    checks it, with a real transfer on each device
  verbena explain RETRY_EXC_ERR                     what an error means, from its name or a line of a log
  verbena config check                              whether verbena.toml is right, and what is not
  verbena cert init                                 a certificate authority for development
  verbena demo                                      two processes share an array
  verbena memory-node --size 1GiB                   lends memory to other programs
  verbena file-node DIR                             exports a folder, as verbena://HOST:PORT/…
  verbena bench latency --provider shm --size 64    round trips beside a bare ring
  verbena top HOST:PORT                             a running node's sessions, rates and latencies
  verbena failover-drill                            breaks a wire on purpose; what goes on, and when
  verbena kv check DIR                              whether what a store keeps on disk is whole
  verbena shards move 0-99 n2                       slots of a cluster to another node, while they are in use
  verbena registry                                  a container registry on 127.0.0.1:5000

exit status: 0 done, 1 failed, 2 wrong usage, 128 + n ended by signal n
"""


class Terminated(BaseException):
    """SIGTERM, as an exception: everything under way is closed on its way up."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, as a value: the reference page and the tests read it."""
    parser = argparse.ArgumentParser(
        prog="verbena",
        description="RDMA for Python: one verbs model on several wires.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"verbena {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands).set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status; a failure is printed as text, without a traceback."""
    options = build_parser().parse_args(arguments)
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except VerbenaError as error:
        print(f"verbena: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has left; what is still buffered must not fail again at exit.
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
