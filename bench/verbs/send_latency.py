"""How long does a 64-byte SEND take there and back, beside a bare ring and UCX on the same two cores?"""

from __future__ import annotations

import argparse
import functools
import os

from bench import latency, ucx
from bench.figure import Figure, program
from verbena.cli.measure import baselines, probes
from verbena.cli.measure.peer import Peer

SIZE = 64
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

    # The bounds apply to pinned processes only; otherwise the scheduler may move them.
    comparison = latency.Comparison(
        name=f"shm SEND {SIZE} B round trip, {where}",
        baseline="bare ring",
        bound=2 if options.pin else None,
        ucx="UCX posix",
        ucx_tests=ucx.TESTS,
        ucx_round_trip_ns=functools.partial(
            ucx.round_trip_ns, size=SIZE, iterations=UCX_ITERATIONS, cores=cores
        ),
        ucx_bound=1 if options.pin else None,
    )
    with (
        Peer("shm", cores=cores and [cores[1]]) as peer,
        baselines.RingLatency(peer, SIZE, batch=BATCH) as ring,
        probes.latency(peer, "shm", "send", "native", SIZE, batch=BATCH) as subject,
    ):
        return latency.figures(ring, subject, comparison, seconds=options.seconds)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pin", action="store_true", help="pin the two processes to the first two cores")


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
