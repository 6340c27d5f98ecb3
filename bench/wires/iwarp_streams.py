"""How close do large one-sided transfers over TCP come to a bare TCP stream, and what do they cost in CPU?"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench import ucx
from bench.figure import Figure, program
from bench.processes import cpu_ns
from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Operation, Probe
from verbena.cli.measure.rounds import Budget, Series, interleave
from verbena.cli.measure.tcp import TcpStream

GIB = 1 << 30
SIZE = 1 << 20
CPU_BOUND = 1.3
# Operation → the equivalent UCX test.
OPERATIONS: dict[Operation, str] = {"write": "put", "read": "get"}
UCX_TURNS = 3


@dataclass(frozen=True)
class Checksum:
    """Whether a CRC covers each segment, and the required share of a bare stream's bandwidth."""

    name: str
    settings: dict[str, str]
    bound: float


CHECKSUMS = (
    Checksum("no CRC", {"VERBENA_IWARP_CRC": "0"}, 0.85),
    Checksum("CRC32C", {"VERBENA_IWARP_CRC": "1"}, 0.7),
)


class Costed(Probe):
    """Returns another probe's samples and records the CPU seconds of both processes per GiB of each run."""

    def __init__(self, inner: Probe, peer: Peer, size: int) -> None:
        self._inner, self._peer, self._size = inner, peer, size
        self.least = inner.least
        self.cpu_s_per_gib: list[float] = []

    def run(self, count: int) -> Sequence[float]:
        before = self._cpu_ns()
        samples = self._inner.run(count)
        self.cpu_s_per_gib.append((self._cpu_ns() - before) / 1e9 * GIB / (count * self._size))
        return samples

    def close(self) -> None:
        self._inner.close()

    def _cpu_ns(self) -> int:
        return cpu_ns(self._peer.pid) + cpu_ns(os.getpid())


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    for operation in OPERATIONS:
        for checksum in CHECKSUMS:
            figures += _beside_bare(operation, checksum, options.seconds)
    return figures


def _beside_bare(operation: Operation, checksum: Checksum, seconds: float) -> list[Figure]:
    """Measures two programs beside the bare stream: one sleeps while there is nothing to do, as the bare
    one does; the other spins on its completion queue and uses a whole core on purpose, so its CPU has no
    bound."""
    name = f"iwarp {operation.upper()} {text.size(SIZE)}, {checksum.name}"
    theirs: list[float] = []
    with contextlib.ExitStack() as stack:
        # A peer has one link at a time, so each subject needs its own.
        peers = [stack.enter_context(Peer("iwarp:lo")) for _ in range(3)]
        subjects: list[Probe] = [TcpStream(peers[0], SIZE, towards_peer=operation == "write")]
        subjects += [
            probes.bandwidth(
                peer, "iwarp:lo", operation, "native", SIZE, settings=checksum.settings, sleeps=sleeps
            )
            for peer, sleeps in zip(peers[1:], (True, False), strict=True)
        ]
        costed = [Costed(subject, peer, SIZE) for subject, peer in zip(subjects, peers, strict=True)]
        for one in costed:
            stack.enter_context(one)
        series = [Series() for _ in costed]
        for _ in range(UCX_TURNS):
            for whole, turn in zip(series, interleave(costed, _budget(seconds)), strict=True):
                whole.rounds += turn.rounds
            if ucx.available():
                theirs.append(ucx.tcp_bandwidth(OPERATIONS[operation], size=SIZE))
    bare, asleep, spinning = costed
    bare_rate, asleep_rate, spinning_rate = (whole.median for whole in series)
    figures = []
    for way, rate in (("asleep", asleep_rate), ("spinning", spinning_rate)):
        ratio = rate / bare_rate
        figures.append(
            Figure(
                f"{name}, {way}",
                text.bandwidth(rate),
                f"bare TCP {text.bandwidth(bare_rate)}",
                f"{ratio:.2f}",
                f"≥ {checksum.bound}",
                ratio >= checksum.bound,
            )
        )
    bare_cpu = statistics.median(bare.cpu_s_per_gib)
    for way, subject, bound in (("asleep", asleep, CPU_BOUND), ("spinning", spinning, None)):
        cpu = statistics.median(subject.cpu_s_per_gib)
        figures.append(
            Figure(
                f"{name}, {way}: CPU of both ends",
                f"{cpu:.2f} s/GiB",
                f"bare TCP {bare_cpu:.2f} s/GiB",
                f"{cpu / bare_cpu:.2f}",
                f"≤ {bound}" if bound else "–",
                cpu <= bound * bare_cpu if bound else None,
            )
        )
    if theirs:
        foreign = statistics.median(theirs)
        figures.append(
            Figure(
                f"{name}, spinning",
                text.bandwidth(spinning_rate),
                f"UCX tcp, {OPERATIONS[operation]} {text.bandwidth(foreign)}",
                f"{spinning_rate / foreign:.2f}",
                "≥ 1",
                spinning_rate >= foreign,
            )
        )
    return figures


def _budget(seconds: float) -> Budget:
    return Budget(seconds=seconds / UCX_TURNS, rounds=5)


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
