"""Does redis-py over a session keep up with redis-py over TCP, for values of any size?"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import redis

from bench.figure import Figure, Ratio, program
from verbena import kv
from verbena.cli import text
from verbena.cli.measure.stores import verbena_store

KEY = "bench:value"
BOUNDS = {64: 1.5, 4 << 10: 1.2, 256 << 10: 1.2, 4 << 20: 1.2}
PAIRS = 9
FEWEST, MOST = 5, 2000  # operations of one turn


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    with verbena_store() as store:
        pool = kv.redis_pool(store.sessions)
        with redis.Redis(port=store.port) as by_tcp, redis.Redis(connection_pool=pool) as by_session:
            for size, bound in BOUNDS.items():
                value = os.urandom(size)
                by_tcp.set(KEY, value)
                assert by_session.get(KEY) == value
                for name in ("GET", "SET"):
                    work = [_operation(client, name, value) for client in (by_session, by_tcp)]
                    figures.append(_figure(name, size, bound, *work, seconds=options.seconds))
        pool.disconnect()
    return figures


def _operation(client: redis.Redis, name: str, value: bytes) -> Callable[[], object]:
    return (lambda: client.get(KEY)) if name == "GET" else (lambda: client.set(KEY, value))


def _figure(
    name: str,
    size: int,
    bound: float,
    by_session: Callable[[], object],
    by_tcp: Callable[[], object],
    *,
    seconds: float,
) -> Figure:
    """Turns alternate; each has the operations that fit into its share of the time."""
    turn_s = seconds / PAIRS / 2 / 4
    count = max(FEWEST, min(MOST, int(turn_s / _median_s(by_tcp, FEWEST))))
    turns = [(_median_s(by_session, count), _median_s(by_tcp, count)) for _ in range(PAIRS)]
    ratio = Ratio.of((base, own) for own, base in turns)
    own_s, base_s = (statistics.median(times) for times in zip(*turns, strict=True))
    return Figure(
        f"kv redis-py {name} {text.size(size)} over a session, p50",
        text.duration(own_s * 1e9),
        f"redis-py over TCP {text.duration(base_s * 1e9)}",
        str(ratio),
        f"≥ {bound}",
        ratio.median >= bound,
    )


def _median_s(work: Callable[[], object], count: int) -> float:
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
