"""How long does a 64-byte SEND over TCP take there and back, beside a bare socket and UCX?"""

from __future__ import annotations

import argparse
import statistics

from bench import ucx
from bench.figure import Figure, program
from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.rounds import Budget, interleave
from verbena.cli.measure.tcp import TcpLatency

SIZE = 64
TURNS = 3
BOUND = 1.25
UCX_ITERATIONS = 20_000


def measure(options: argparse.Namespace) -> list[Figure]:
    own: list[float] = []
    bare: list[float] = []
    foreign: dict[str, list[float]] = {name: [] for name in ucx.TCP_TESTS} if ucx.available() else {}
    with (
        Peer("iwarp:lo") as peer,
        TcpLatency(peer, SIZE) as socket,
        probes.latency(peer, "iwarp:lo", "send", "native", SIZE) as subject,
    ):
        for _ in range(TURNS):
            series = interleave([socket, subject], Budget(seconds=options.seconds / TURNS))
            bare.append(series[0].median)
            own.append(series[1].median)
            for name, medians in foreign.items():
                medians.append(ucx.tcp_round_trip_ns(name, size=SIZE, iterations=UCX_ITERATIONS))

    measured, bare_ns = statistics.median(own), statistics.median(bare)
    name = f"iwarp SEND {SIZE} B round trip, CRC32C"
    ratio = measured / bare_ns
    figures = [
        Figure(
            name,
            text.duration(measured),
            f"bare TCP {text.duration(bare_ns)}",
            f"{ratio:.2f}",
            f"≤ {BOUND}",
            ratio <= BOUND,
        )
    ]
    for test, medians in foreign.items():
        theirs = statistics.median(medians)
        figures.append(
            Figure(
                name,
                text.duration(measured),
                f"UCX tcp, {test} {text.duration(theirs)}",
                f"{measured / theirs:.2f}",
                "≤ 1",
                measured <= theirs,
            )
        )
    if not foreign:
        figures.append(Figure(name, text.duration(measured), "UCX is not installed (ucx-utils)", "–"))
    return figures


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
