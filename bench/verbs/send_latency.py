"""How long does a 64-byte SEND take there and back, beside a bare ring and UCX on the same two cores?"""

from __future__ import annotations

import argparse
import os
import statistics

from bench import ucx
from bench.figure import Figure, program
from verbena.cli import text
from verbena.cli.measure import baselines, probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.rounds import Budget, interleave

SIZE = 64
TURNS = 3
BATCH = 16  # the clock's resolution may be only 10 ns
UCX_ITERATIONS = 200_000


def measure(options: argparse.Namespace) -> list[Figure]:
    cores = None
    where = "unpinned"
    if options.pin:
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            raise SystemExit("pinning needs two cores")
        cores = usable[:2]
        where = f"pinned to cores {cores[0]} and {cores[1]}"
        os.sched_setaffinity(0, {cores[0]})

    subject_medians: list[float] = []
    ring_medians: list[float] = []
    foreign: dict[str, list[float]] = {name: [] for name in ucx.TESTS} if ucx.available() else {}
    with (
        Peer("shm", cores=cores and [cores[1]]) as peer,
        baselines.RingLatency(peer, SIZE, batch=BATCH) as ring,
        probes.latency(peer, "shm", "send", "native", SIZE, batch=BATCH) as subject,
    ):
        for _ in range(TURNS):
            series = interleave([ring, subject], Budget(seconds=options.seconds / TURNS))
            ring_medians.append(series[0].median)
            subject_medians.append(series[1].median)
            for name, medians in foreign.items():
                medians.append(ucx.round_trip_ns(name, size=SIZE, iterations=UCX_ITERATIONS, cores=cores))

    measured, ring_ns = statistics.median(subject_medians), statistics.median(ring_medians)
    name = f"shm SEND {SIZE} B round trip, {where}"
    # The bounds apply to pinned processes only; otherwise the scheduler may move them.
    ratio = measured / ring_ns
    figures = [
        Figure(
            name,
            text.duration(measured),
            f"bare ring {text.duration(ring_ns)}",
            f"{ratio:.2f}",
            "≤ 2" if options.pin else "–",
            ratio <= 2 if options.pin else None,
        )
    ]
    for test, medians in foreign.items():
        theirs = statistics.median(medians)
        figures.append(
            Figure(
                name,
                text.duration(measured),
                f"UCX posix, {test} {text.duration(theirs)}",
                f"{measured / theirs:.2f}",
                "< 1" if options.pin else "–",
                measured < theirs if options.pin else None,
            )
        )
    if not foreign:
        figures.append(Figure(name, text.duration(measured), "UCX is not installed (ucx-utils)", "–"))
    return figures


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pin", action="store_true", help="pin the two processes to the first two cores")


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
