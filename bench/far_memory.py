"""When is an array in another process's memory good enough? Scans and random rows, beside numpy's own, the
wire's READs and memcpy."""

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
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import verbena
from bench.figure import Figure, Ratio, program
from verbena import far
from verbena.cli import text

ROW_BYTES = 4096
ROWS = 16_384  # 64 MiB in all
CHUNK = 256  # rows per step of a scan: 1 MiB
AHEAD = 4 * CHUNK  # rows fetched in advance
HOT = 1024  # rows of a working set that fits into the cache
PICKS = 1000
SHORT_BYTES = 64
SHORT_PICKS = 100_000

Scan = Callable[[Any], float]


@contextlib.contextmanager
def memory_node() -> Iterator[tuple[str, str]]:
    """Runs `verbena memory-node` as a process; yields its address and secret."""
    secret = secrets.token_hex(16)
    command = [
        sys.executable,
        "-m",
        "verbena",
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

    def __init__(self, session: verbena.sync.Session) -> None:
        random = np.random.default_rng(1)
        self.session = session
        self.near = random.random((ROWS, ROW_BYTES // 8), "f8")
        self.anywhere, self.hot = random.integers(ROWS, size=PICKS), random.integers(HOT, size=PICKS)
        self.short = random.integers(self.near.nbytes // SHORT_BYTES, size=SHORT_PICKS)
        self.copy = np.empty((CHUNK, ROW_BYTES // 8), "f8")
        self.cached = far.zeros(session, self.near.shape, "f8", cache_bytes=32 << 20)
        self.cached[:] = self.near
        self.cached.flush()
        self.bare = far.Array(session, self.cached.remote, "f8", self.near.shape, cache_bytes=0)
        for array in (self.cached, self.bare):
            assert np.array_equal(array[self.anywhere], self.near[self.anywhere])
        shape = (self.near.nbytes // SHORT_BYTES, SHORT_BYTES // 8)
        self.near_short = self.near.reshape(shape)
        self.bare_short = far.Array(session, self.cached.remote, "f8", shape, cache_bytes=0)

    def copy_all(self) -> float:
        """memcpy() of the local array, and the light work."""
        total = 0.0
        for start in range(0, ROWS, CHUNK):
            np.copyto(self.copy, self.near[start : start + CHUNK])
            total += light(self.copy)
        return total

    def read_long(self) -> float:
        """As many bytes as PICKS rows by the session's READs of 64 KiB: the wire's READ bandwidth."""
        step = 64 << 10
        into = np.empty(PICKS * ROW_BYTES // step * step, "u1")
        offsets = np.arange(into.nbytes // step) * step
        self.session.read_many(self.cached.remote, offsets, into=into)
        return 0.0


class Question(NamedTuple):
    """Far memory beside a baseline, which takes the same time if the ratio is 1."""

    name: str
    baseline: str
    base: Callable[[Bench], float]
    far: Callable[[Bench], float]
    amount: int  # bytes or rows per turn
    unit: Callable[[float], str]
    bounds: Mapping[str, float] = MappingProxyType({})  # the lowest ratio, by wire
    least: Mapping[str, float] = MappingProxyType({})  # the lowest rate, by wire


BYTES = ROWS * ROW_BYTES
# The one list of questions.
QUESTIONS = [
    Question(
        "scan, light work",
        "memcpy",
        Bench.copy_all,
        lambda b: scan(b.bare, light),
        BYTES,
        text.bandwidth,
        {"shm": 0.5},
    ),
    Question(
        "scan, light work, prefetch",
        "without prefetch",
        lambda b: scan(b.bare, light),
        lambda b: cold(b.cached, light),
        BYTES,
        text.bandwidth,
        {"shm": 0.9},
    ),
    Question(
        "scan, heavy work",
        "numpy",
        lambda b: scan(b.near, heavy),
        lambda b: scan(b.bare, heavy),
        BYTES,
        text.bandwidth,
    ),
    Question(
        "scan, heavy work, prefetch",
        "without prefetch",
        lambda b: scan(b.bare, heavy),
        lambda b: cold(b.cached, heavy),
        BYTES,
        text.bandwidth,
    ),
    Question(
        "random rows, one by one",
        "numpy",
        lambda b: one_by_one(b.near, b.anywhere),
        lambda b: one_by_one(b.bare, b.anywhere),
        PICKS,
        text.rate,
    ),
    Question(
        "random rows in one index",
        "numpy",
        lambda b: at_once(b.near, b.anywhere),
        lambda b: at_once(b.bare, b.anywhere),
        PICKS,
        text.rate,
        {"shm": 0.5},
    ),
    Question(
        "random rows in one index",
        "long READs",
        Bench.read_long,
        lambda b: float(b.bare.take(b.anywhere)[0, 0]),
        PICKS * ROW_BYTES,
        text.bandwidth,
        {"iwarp": 0.5},
    ),
    Question(
        "random rows of 64 B in one index",
        "numpy",
        lambda b: float(b.near_short[b.short].sum()),
        lambda b: float(b.bare_short[b.short].sum()),
        SHORT_PICKS,
        text.rate,
        least={"shm": 5e6},
    ),
    Question(
        "cached rows, one by one",
        "fetched rows",
        lambda b: one_by_one(b.bare, b.hot),
        lambda b: one_by_one(b.cached, b.hot),
        PICKS,
        text.rate,
        {"shm": 1.0, "iwarp": 1.0},
    ),
    Question(
        "cached rows in one index",
        "fetched rows",
        lambda b: at_once(b.bare, b.hot),
        lambda b: at_once(b.cached, b.hot),
        PICKS,
        text.rate,
    ),
]


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    with memory_node() as (address, secret):
        for wire in ("shm", "iwarp"):
            with verbena.sync.connect(address, secret=secret, wire=wire) as session:
                bench = Bench(session)
                figures += [_figure(wire, bench, question, options.seconds) for question in QUESTIONS]
                far.free(bench.cached)
    return figures


def _figure(wire: str, bench: Bench, question: Question, seconds: float) -> Figure:
    question.base(bench)
    question.far(bench)  # warms up
    pairs: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(pairs) < 3:
        taken = []
        for work in (question.base, question.far):
            start = time.perf_counter()
            work(bench)
            taken.append(time.perf_counter() - start)
        pairs.append((taken[0], taken[1]))
    base_s, far_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio, rate = Ratio.of(pairs), question.amount / far_s
    bound, passed = "–", None
    if wire in question.bounds:
        bound, passed = f"≥ {question.bounds[wire]}", ratio.median >= question.bounds[wire]
    elif wire in question.least:
        bound, passed = f"≥ {question.unit(question.least[wire])}", rate >= question.least[wire]
    return Figure(
        f"{wire}: {question.name}",
        question.unit(rate),
        f"{question.baseline} {question.unit(question.amount / base_s)}",
        str(ratio),
        bound,
        passed,
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
