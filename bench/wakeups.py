"""Does an awaited READ cost more than an event loop's own wake-up?"""

from __future__ import annotations

import argparse

from figure import Figure, program

from verbena.cli import text
from verbena.cli.measure import baselines, probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.rounds import Budget, interleave

SIZE = 64
BOUND = 1.2


def measure(options: argparse.Namespace) -> list[Figure]:
    with (
        Peer("shm") as peer,
        baselines.WakeUp() as wake_up,
        probes.latency(peer, "shm", "read", "async", SIZE) as subject,
    ):
        bound, measured = interleave([wake_up, subject], Budget(seconds=options.seconds))
    ratio = measured.median / bound.median
    return [
        Figure(
            f"shm await READ {SIZE} B",
            text.duration(measured.median),
            f"eventfd wake-up {text.duration(bound.median)}",
            f"{ratio:.2f}",
            f"≤ {BOUND}",
            ratio <= BOUND,
        )
    ]


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
