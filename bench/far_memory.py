"""When is an array in another process's memory good enough? Scans and random rows, beside numpy's own."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import verbena
from bench.figure import Figure, program
from verbena import far
from verbena.cli import text

ROW_BYTES = 4096
ROWS = 16_384  # 64 MiB in all
CHUNK = 256  # rows per step of a scan: 1 MiB
AHEAD = 4 * CHUNK  # rows fetched in advance
HOT = 1024  # rows of a working set that fits into the cache
PICKS = 1000

Scan = Callable[[Any], float]


@contextlib.contextmanager
def memory_node() -> Iterator[tuple[str, str]]:
    """Runs `verbena memory-node` as a process; yields its address and secret."""
    secret = secrets.token_hex(16)
    command = [
        sys.executable,
        "-m",
        "verbena.cli",
        "memory-node",
        "--size",
        "256MiB",
        "--listen",
        "127.0.0.1:0",
    ]
    environment = {**os.environ, "VERBENA_SESSION_SECRET": secret}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[3].rstrip(":"), secret
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()


def light(rows: Any) -> float:
    """Work that is limited by memory bandwidth."""
    return float(rows.sum())


def heavy(rows: Any) -> float:
    """Work that takes longer than the transfer."""
    return float(np.sin(rows).sum())


def scan(array: Any, work: Scan) -> float:
    return sum(work(array[start : start + CHUNK]) for start in range(0, ROWS, CHUNK))


def scan_ahead(array: far.Array, work: Scan) -> float:
    total = 0.0
    array.prefetch(slice(0, AHEAD))
    for start in range(0, ROWS, CHUNK):
        array.prefetch(slice(start + AHEAD, start + AHEAD + CHUNK))
        total += work(array[start : start + CHUNK])
    return total


def one_by_one(array: Any, rows: Any) -> float:
    return float(sum(array[row][0] for row in rows.tolist()))


def at_once(array: Any, rows: Any) -> float:
    return float(array[rows][:, 0].sum())


def cold(array: far.Array, work: Scan) -> float:
    array.invalidate()
    return scan_ahead(array, work)


class Bench:
    """The same data in a local array, in far memory without a cache, and in far memory with one."""

    def __init__(self, session: verbena.Session) -> None:
        random = np.random.default_rng(1)
        self.near = random.random((ROWS, ROW_BYTES // 8), "f8")
        self.anywhere, self.hot = random.integers(ROWS, size=PICKS), random.integers(HOT, size=PICKS)
        self.cached = far.allocate(session, "f8", self.near.shape, cache_bytes=32 << 20)
        self.cached[:] = self.near
        self.bare = far.Array(session, self.cached.remote, "f8", self.near.shape, cache_bytes=0)


Work = Callable[[Bench], float]

# The one list of questions: name, work on the local array, work on far memory, bytes or rows per turn.
QUESTIONS: list[tuple[str, Work, Work, int]] = [
    ("scan, light work", lambda b: scan(b.near, light), lambda b: scan(b.bare, light), ROWS * ROW_BYTES),
    ("the same, prefetch", lambda b: scan(b.near, light), lambda b: cold(b.cached, light), ROWS * ROW_BYTES),
    ("scan, heavy work", lambda b: scan(b.near, heavy), lambda b: scan(b.bare, heavy), ROWS * ROW_BYTES),
    ("the same, prefetch", lambda b: scan(b.near, heavy), lambda b: cold(b.cached, heavy), ROWS * ROW_BYTES),
    (
        "random rows, one by one",
        lambda b: one_by_one(b.near, b.anywhere),
        lambda b: one_by_one(b.bare, b.anywhere),
        PICKS,
    ),
    (
        "random rows in one index",
        lambda b: at_once(b.near, b.anywhere),
        lambda b: at_once(b.bare, b.anywhere),
        PICKS,
    ),
    (
        "random rows, all in the cache",
        lambda b: one_by_one(b.near, b.hot),
        lambda b: one_by_one(b.cached, b.hot),
        PICKS,
    ),
]


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    with memory_node() as (address, secret):
        for wire in ("shm", "iwarp"):
            with verbena.connect_blocking(address, secret=secret, wire=wire) as session:
                bench = Bench(session)
                figures += [_figure(wire, bench, question, options.seconds) for question in QUESTIONS]
                far.free(bench.cached)
    return figures


def _figure(wire: str, bench: Bench, question: tuple[str, Work, Work, int], seconds: float) -> Figure:
    name, locally, remotely, amount = question
    assert abs(locally(bench) - remotely(bench)) < 1e-3  # same result on both; also warms up
    times: tuple[list[float], list[float]] = ([], [])
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[0]) < 3:
        for work, taken in zip((locally, remotely), times, strict=True):
            start = time.perf_counter()
            work(bench)
            taken.append(time.perf_counter() - start)
    near_s, far_s = (statistics.median(taken) for taken in times)
    shown = text.rate if amount == PICKS else text.bandwidth
    return Figure(
        f"{wire}: {name}", shown(amount / far_s), f"numpy {shown(amount / near_s)}", f"{near_s / far_s:.2g}"
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
