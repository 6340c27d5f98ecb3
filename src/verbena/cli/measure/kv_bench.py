"""`verbena kv bench`: loads several Redis-compatible servers in turn with one client."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from verbena.cli import text
from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena kv bench                              start a Verbena store and redis-server, compare both
  verbena kv bench 127.0.0.1:6379 db2:6379      compare running servers with the first one
  verbena kv bench --pipeline 16 --seconds 5 --json
"""
NOTES = """\
On running servers only keys with the prefix verbena-bench: are used, and removed afterwards. Each test
alternates between the servers every tenth of a second, for --seconds each. P50, P99 and P99.9 measure the
time from sending a batch (--pipeline requests) to its last reply.
"""

MAX_TARGETS = 8


@dataclass
class Test:
    """A kind of request. `words` builds its arguments for a key and a value."""

    words: Callable[[str, bytes], list[str | bytes]]
    summary: str


TESTS = {
    "set": Test(lambda key, value: ["SET", key, value], "SET of random keys"),
    "get": Test(lambda key, _: ["GET", key], "GET of random keys"),
    "incr": Test(lambda key, _: ["INCR", f"{key}:n"], "INCR of random counters"),
    "mget": Test(lambda key, _: ["MGET", *[key] * 10], "MGET of ten random keys"),
    "ping": Test(lambda *_: ["PING"], "PING, which touches no key"),
}
DEFAULT_TESTS = "set,get"


def add_parser(actions: argparse._SubParsersAction[Parser]) -> None:
    parser = actions.add_parser(
        "bench",
        help="benchmark servers that speak the Redis protocol",
        description="Runs the same load against several Redis-compatible servers in alternating rounds.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "servers",
        nargs="*",
        metavar="HOST:PORT",
        type=_address,
        help="running servers (default: start a Verbena store and redis-server)",
    )
    parser.add_argument(
        "--tests",
        type=_tests,
        default=_tests(DEFAULT_TESTS),
        metavar="TESTS",
        help=f"a list of {', '.join(TESTS)} (default: {DEFAULT_TESTS})",
    )
    parser.add_argument(
        "--clients", metavar="N", type=_count(1, 10_000), default=50, help="connections (default: 50)"
    )
    parser.add_argument(
        "--pipeline", metavar="N", type=_count(1, 10_000), default=1, help="pipeline depth (default: 1)"
    )
    parser.add_argument(
        "--size", metavar="SIZE", type=text.parse_size, default=32, help="value size in bytes (default: 32)"
    )
    parser.add_argument(
        "--keys",
        metavar="N",
        type=_count(1, 100_000_000),
        default=100_000,
        help="number of keys (default: 100000)",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=text.parse_seconds,
        default=2.0,
        help="time per test (default: 2)",
    )
    parser.add_argument("--requests", metavar="N", type=_count(1, 10**10), help="requests per test")
    parser.add_argument("--password", metavar="PASSWORD", default="", help="password of the user `default`")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(action=run)


def run(options: argparse.Namespace) -> int:
    from verbena.cli.measure import kv_load

    return kv_load.run(options)


def _address(argument: str) -> tuple[str, int]:
    host, colon, port = argument.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{argument}' is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _tests(argument: str) -> list[str]:
    names = [name.strip().lower() for name in argument.split(",")]
    for name in names:
        if name not in TESTS:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(TESTS)}")
    return names


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(argument: str) -> int:
        if not argument.isdigit() or not least <= int(argument) <= most:
            raise argparse.ArgumentTypeError(f"'{argument}' is not a number from {least} to {most}")
        return int(argument)

    return parse
