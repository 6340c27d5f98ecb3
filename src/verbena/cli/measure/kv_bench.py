"""`verbena kv bench`: loads several Redis-compatible servers in turn with one client."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verbena.cli import text
from verbena.cli.measure.stats import Summary
from verbena.cli.measure.stores import KEY, Load, Store, has_redis_server, redis_store, verbena_store
from verbena.cli.progress import Progress

EPILOG = """\
examples:
  verbena kv bench                              start a Verbena store and redis-server, compare both
  verbena kv bench 127.0.0.1:6379 db2:6379      compare running servers with the first one
  verbena kv bench --clients 1 --tests get,set,mget --size 1K
  verbena kv bench --pipeline 16 --seconds 5 --json

On running servers only keys with the prefix verbena-bench: are used, and removed afterwards. Each test
alternates between the servers every tenth of a second, for --seconds each. P50, P99 and P99.9 measure the
time from sending a batch (--pipeline requests) to its last reply.
"""

ROUND_S = 0.1
MAX_TARGETS = 8
TEN_KEYS = [KEY] * 10


@dataclass
class Test:
    """A kind of request. `words` builds its arguments for a given value."""

    words: Callable[[bytes], list[str | bytes]]
    summary: str


TESTS = {
    "set": Test(lambda value: ["SET", KEY, value], "SET of random keys"),
    "get": Test(lambda _: ["GET", KEY], "GET of random keys"),
    "incr": Test(lambda _: ["INCR", f"{KEY}:n"], "INCR of random counters"),
    "mget": Test(lambda _: ["MGET", *TEN_KEYS], "MGET of ten random keys"),
    "ping": Test(lambda _: ["PING"], "PING, which touches no key"),
}
DEFAULT_TESTS = "set,get"


@dataclass
class Outcome:
    """The result of one test on one server."""

    test: str
    store: str
    samples: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    requests: int = 0

    @property
    def rate(self) -> float:
        ordered = sorted(self.rates)
        return ordered[len(ordered) // 2]

    def as_json(self) -> dict[str, Any]:
        times = {
            f"{name}_ns": value
            for name, value in Summary.of(self.samples).as_json().items()
            if name != "count"
        }
        return {
            "test": self.test,
            "server": self.store,
            "requests": self.requests,
            "per_second": self.rate,
            **times,
        }


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "bench",
        help="benchmark servers that speak the Redis protocol",
        description="Runs the same load against several Redis-compatible servers in alternating rounds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "servers",
        nargs="*",
        metavar="HOST:PORT",
        type=_address,
        help="running servers (default: start a Verbena store and redis-server)",
    )
    names = ", ".join(f"{name} ({test.summary})" for name, test in TESTS.items())
    parser.add_argument(
        "--tests",
        type=_tests,
        default=_tests(DEFAULT_TESTS),
        help=f"a list of {names} (default: {DEFAULT_TESTS})",
    )
    parser.add_argument("--clients", type=_count(1, 10_000), default=50, help="connections (default: 50)")
    parser.add_argument("--pipeline", type=_count(1, 10_000), default=1, help="pipeline depth (default: 1)")
    parser.add_argument("--size", type=text.parse_size, default=32, help="value size in bytes (default: 32)")
    parser.add_argument(
        "--keys", type=_count(1, 100_000_000), default=100_000, help="number of keys (default: 100000)"
    )
    parser.add_argument(
        "--seconds", type=text.parse_seconds, default=2.0, help="time per test and server (default: 2)"
    )
    parser.add_argument("--requests", type=_count(1, 10**10), help="number of requests per test and server")
    parser.add_argument("--password", default="", help="password of the user `default`")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(action=run)


def run(options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        stores = [
            Store(f"{host}:{port}", host, port, password=options.password) for host, port in options.servers
        ]
        if not stores:
            stores = [stack.enter_context(verbena_store())]
            if has_redis_server():
                stores.append(stack.enter_context(redis_store()))
        outcomes: list[Outcome] = []
        try:
            with Progress("kv bench") as progress:
                for index, name in enumerate(options.tests):

                    def show(fraction: float, index: int = index, name: str = name) -> None:
                        progress.update((index + fraction) / len(options.tests), note=name)

                    outcomes += _measure(name, stores, options, show)
        finally:
            if options.servers:
                for store in stores:
                    _clean(store, options)
    if options.json:
        print(
            json.dumps({"options": _settings(options), "results": [o.as_json() for o in outcomes]}, indent=2)
        )
    else:
        print(_report(options, outcomes, len(stores)))
    return 0


def _measure(
    name: str, stores: list[Store], options: argparse.Namespace, progress: Callable[[float], None]
) -> list[Outcome]:
    value = b"x" * options.size
    with contextlib.ExitStack() as stack:
        if name in ("get", "mget"):  # these need existing keys
            for store in stores:
                depth = max(1, min(64, (1 << 20) // options.size))
                with Load(store, "SET", KEY, value, keys=options.keys, depth=depth, in_order=True) as fill:
                    fill.run(-(-options.keys // depth))
        loads = [
            stack.enter_context(
                Load(
                    store,
                    *TESTS[name].words(value),
                    keys=options.keys,
                    clients=options.clients,
                    depth=options.pipeline,
                )
            )
            for store in stores
        ]
        outcomes = [Outcome(name, store.name) for store in stores]
        counts = [_calibrate(load, options) for load in loads]
        most = options.requests or float("inf")
        start, budget = time.monotonic(), options.seconds * len(stores)
        while (elapsed := time.monotonic() - start) < budget or not outcomes[0].rates:
            progress(elapsed / budget)
            for load, outcome, count in zip(loads, outcomes, counts, strict=True):
                batches = int(min(count, -(-(most - outcome.requests) // options.pipeline)))
                samples, result = load.run(batches)
                outcome.samples += samples
                outcome.rates.append(result.done / result.elapsed_ns * 1e9)
                outcome.requests += result.done
            if min(outcome.requests for outcome in outcomes) >= most:
                break
    return outcomes


def _calibrate(load: Load, options: argparse.Namespace) -> int:
    """Returns how many batches fill one round; also warms up."""
    batches: int = options.clients
    if options.requests:
        wanted: int = options.requests // options.pipeline
        return max(1, min(batches, wanted))
    while True:
        _, result = load.run(batches)
        if result.elapsed_ns > ROUND_S * 1e9 / 4 or batches > 1 << 22:
            return max(1, int(batches * ROUND_S * 1e9 / result.elapsed_ns))
        batches *= 4


def _clean(store: Store, options: argparse.Namespace) -> None:
    store.remove_keys(options.keys, suffixes=("", ":n") if "incr" in options.tests else ("",))


def _report(options: argparse.Namespace, outcomes: list[Outcome], servers: int) -> str:
    head = f"{options.clients} clients, pipeline {options.pipeline}, "
    head += f"values of {text.size(options.size)}, {options.keys:,} keys"
    rows = [["test", "server", "requests/s", "P50", "P99", "P99.9", "ratio"]]
    for index, outcome in enumerate(outcomes):
        first = outcomes[index - index % servers]
        summary = dict(Summary.of(outcome.samples).columns())
        rows.append(
            [
                outcome.test,
                outcome.store,
                text.rate(outcome.rate),
                *(text.duration(summary[name]) for name in ("p50", "p99", "p99.9")),
                "" if outcome is first else f"{first.rate / outcome.rate:.2f}",
            ]
        )
    lines = [head, "", text.table(rows)]
    if servers > 1:
        lines.append(
            f"ratio: requests/s of {outcomes[0].store} relative to the other server; higher is better"
        )
    return "\n".join(lines)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("clients", "pipeline", "size", "keys", "seconds", "requests")
    return {name: getattr(options, name) for name in names}


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
