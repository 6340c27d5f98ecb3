"""How close do large one-sided transfers over TCP come to a bare TCP stream, and what do they cost in CPU?"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

import ucx
from figure import Figure, program

from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Operation
from verbena.cli.measure.rounds import Budget, Series, interleave
from verbena.cli.measure.tcp import Costed, TcpStream

SIZE = 1 << 20
CPU_BOUND = 1.3
# Operation → what UCX does for the same.
OPERATIONS: dict[Operation, str] = {"write": "put", "read": "get"}
UCX_TURNS = 3


@dataclass(frozen=True)
class Checksum:
    """Whether a CRC covers each segment, and the least share of a bare stream that must be left then."""

    name: str
    settings: dict[str, str]
    bound: float


CHECKSUMS = (
    Checksum("no CRC", {"VERBENA_IWARP_CRC": "0"}, 0.85),
    Checksum("CRC32C", {"VERBENA_IWARP_CRC": "1"}, 0.7),
)


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    for operation in OPERATIONS:
        for checksum in CHECKSUMS:
            figures += _beside_bare(operation, checksum, options.seconds)
    return figures


def _beside_bare(operation: Operation, checksum: Checksum, seconds: float) -> list[Figure]:
    name = f"iwarp {operation.upper()} {text.size(SIZE)}, {checksum.name}"
    theirs: list[float] = []
    own = Series()
    bare = Series()
    with Peer("iwarp:lo") as peer:
        stream = TcpStream(peer, SIZE, towards_peer=operation == "write")
        subject = probes.bandwidth(peer, "iwarp:lo", operation, "native", SIZE, settings=checksum.settings)
        with Costed(stream, peer, SIZE) as costed_bare, Costed(subject, peer, SIZE) as costed_own:
            for _ in range(UCX_TURNS):
                first, second = interleave(
                    [costed_bare, costed_own], Budget(seconds=seconds / UCX_TURNS, rounds=5)
                )
                bare.rounds += first.rounds
                own.rounds += second.rounds
                if ucx.available():
                    theirs.append(ucx.tcp_bandwidth(OPERATIONS[operation], size=SIZE))
    ratio = own.median / bare.median
    cpu, bare_cpu = (statistics.median(one.cpu_s_per_gib) for one in (costed_own, costed_bare))
    figures = [
        Figure(
            name,
            text.bandwidth(own.median),
            f"bare TCP {text.bandwidth(bare.median)}",
            f"{ratio:.2f}",
            f"≥ {checksum.bound}",
            ratio >= checksum.bound,
        ),
        Figure(
            f"{name}: CPU of both ends",
            f"{cpu:.2f} s/GiB",
            f"bare TCP {bare_cpu:.2f} s/GiB",
            f"{cpu / bare_cpu:.2f}",
            f"≤ {CPU_BOUND}",
            cpu <= CPU_BOUND * bare_cpu,
        ),
    ]
    if theirs:
        foreign = statistics.median(theirs)
        figures.append(
            Figure(
                name,
                text.bandwidth(own.median),
                f"UCX tcp, {OPERATIONS[operation]} {text.bandwidth(foreign)}",
                f"{own.median / foreign:.2f}",
                "≥ 1",
                own.median >= foreign,
            )
        )
    return figures


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
