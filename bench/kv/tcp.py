"""The store over TCP compared with redis-server, by redis-benchmark.

The servers alternate strictly, with the same client, requests and number of turns; no turn is left out. A
ratio is the median over pairs of neighbouring turns, because changes of the machine's speed affect both of a
pair. A server that waits for its turn has no connections and sleeps."""

from __future__ import annotations

import contextlib
import csv
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure, Ratio
from bench.processes import cpu_ns
from verbena.cli import text
from verbena.cli.measure.stores import Store

REDIS_BENCHMARK = shutil.which("redis-benchmark")
NULL_SERVER = Path(__file__).parents[2] / "build" / "bench" / "null_server"
KEYS = 100_000
CLIENTS = 50
PAIRS = 9
PAIRS_OF_LIMIT = 3
# Requests per turn for --seconds 4: about 0.6 s, so that connecting is a small part of it.
REQUESTS = {1: 50_000, 16: 600_000}


class Turn(NamedTuple):
    rate: float  # requests per second
    p99_ns: float
    cpu_ns: float  # CPU time of the server per request
    busy: float  # CPU time of the client as a share of the elapsed time


def measure(ours: Store, theirs: Store, seconds: float) -> list[Figure]:
    figures = []
    for store in (ours, theirs):
        _turn(store, "set", 1, KEYS)
    for depth, bound in ((1, 1.0), (16, 1.5)):
        requests = int(REQUESTS[depth] * seconds / 4)
        for command in ("get", "set"):
            pairs = [
                (_turn(ours, command, depth, requests), _turn(theirs, command, depth, requests))
                for _ in range(PAIRS)
            ]
            what = f"kv TCP {command.upper()}, {CLIENTS} clients" + (
                f", pipeline {depth}" if depth > 1 else ""
            )
            figures += _figures(what, pairs, bound, tail_bound=1.0 if depth == 1 else None)
            if command == "get" and NULL_SERVER.exists():
                figures.append(_limit(what, theirs, depth, requests))
    return figures


def _figures(
    what: str, pairs: list[tuple[Turn, Turn]], bound: float, *, tail_bound: float | None
) -> list[Figure]:
    own, base = (
        Turn(*(statistics.median(column) for column in zip(*turns, strict=True)))
        for turns in zip(*pairs, strict=True)
    )
    rate = Ratio.of([(a.rate, b.rate) for a, b in pairs])
    tail = Ratio.of([(a.p99_ns, b.p99_ns) for a, b in pairs])
    cpu = Ratio.of([(a.cpu_ns, b.cpu_ns) for a, b in pairs])
    return [
        Figure(
            what,
            text.rate(own.rate),
            f"redis-server {text.rate(base.rate)}",
            str(rate),
            f"≥ {bound:g}",
            rate.median >= bound,
        ),
        Figure(
            f"{what}, P99",
            text.duration(own.p99_ns),
            f"redis-server {text.duration(base.p99_ns)}",
            str(tail),
            f"≤ {tail_bound:g}" if tail_bound else "–",
            tail.median <= tail_bound if tail_bound else None,
        ),
        Figure(
            f"{what}, CPU of the server per request",
            text.duration(own.cpu_ns),
            f"redis-server {text.duration(base.cpu_ns)}",
            str(cpu),
        ),
        Figure(
            f"{what}, how busy redis-benchmark's processor is",
            f"{own.busy:.0%}",
            f"redis-server {base.busy:.0%}",
            "–",
        ),
    ]


def _limit(what: str, theirs: Store, depth: int, requests: int) -> Figure:
    """The rate of redis-benchmark with a server that does no work, which is an upper limit for any store."""
    pairs = [
        (_null_turn(depth, requests).rate, _turn(theirs, "get", depth, requests).rate)
        for _ in range(PAIRS_OF_LIMIT)
    ]
    own, base = map(statistics.median, zip(*pairs, strict=True))
    return Figure(
        f"{what}, redis-benchmark's own limit: a server that only counts requests",
        text.rate(own),
        f"redis-server {text.rate(base)}",
        str(Ratio.of(pairs)),
    )


@contextlib.contextmanager
def null_store() -> Iterator[Store]:
    """A server that only counts requests. It never sleeps, so it runs during its own turns only."""
    with subprocess.Popen([NULL_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Store("null", "127.0.0.1", int(process.stdout.readline()), pid=process.pid)
        finally:
            process.terminate()


def _null_turn(depth: int, requests: int) -> Turn:
    with null_store() as empty:
        return _turn(empty, "get", depth, requests)


def _turn(store: Store, command: str, depth: int, requests: int) -> Turn:
    load = {"-p": store.port, "-t": command, "-n": requests, "-c": CLIENTS, "-P": depth, "-r": KEYS}
    arguments = [str(word) for option in load.items() for word in option]
    before, start, own = cpu_ns(store.pid), time.perf_counter(), _children_s()
    done = subprocess.run(
        [str(REDIS_BENCHMARK), *arguments, "--csv"], capture_output=True, text=True, check=True
    )
    busy = (_children_s() - own) / (time.perf_counter() - start)
    row = next(csv.DictReader(done.stdout.splitlines()))
    per_request = (cpu_ns(store.pid) - before) / requests
    return Turn(float(row["rps"]), float(row["p99_latency_ms"]) * 1e6, per_request, busy)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
