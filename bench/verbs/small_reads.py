"""What does Python add to an 8-byte one-sided READ, and how fast is the batch form?"""

from __future__ import annotations

import argparse

from bench.figure import Figure, program
from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.rounds import Budget, interleave

SIZE = 8
ADDED_NS = 1500
BATCH_RATE = 5e6


def measure(options: argparse.Namespace) -> list[Figure]:
    # One peer per probe, because a peer holds one link; idle peers cost nothing.
    with (
        Peer("shm") as first,
        Peer("shm") as second,
        Peer("shm") as third,
        probes.latency(first, "shm", "read", "native", SIZE, batch=16) as native,
        probes.latency(second, "shm", "read", "python", SIZE) as blocking,
        probes.rate(third, "shm", "read", "python", SIZE) as batch,
    ):
        series = interleave([native, blocking, batch], Budget(seconds=options.seconds))
    native_ns, blocking_ns, per_second = (one.median for one in series)
    added_ns = blocking_ns - native_ns
    return [
        Figure(
            f"shm READ {SIZE} B from Python, blocking",
            text.duration(blocking_ns),
            f"native loop {text.duration(native_ns)}",
            f"+{text.duration(added_ns)}",
            f"≤ +{text.duration(ADDED_NS)}",
            added_ns <= ADDED_NS,
        ),
        Figure(
            f"shm READ {SIZE} B from Python, read_many",
            text.rate(per_second),
            f"blocking calls {text.rate(1e9 / blocking_ns)}",
            f"{per_second * blocking_ns / 1e9:.1f}",
            f"≥ {text.rate(BATCH_RATE)}",
            per_second >= BATCH_RATE,
        ),
    ]


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
