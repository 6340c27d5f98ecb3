"""How close do large one-sided transfers come to a bare memcpy between two shared mappings?"""

from __future__ import annotations

import argparse

from bench.figure import Figure, program
from verbena.cli import text
from verbena.cli.measure import baselines, probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Operation
from verbena.cli.measure.rounds import Budget, interleave

SIZES = (1 << 20, 16 << 20)
OPERATIONS: tuple[Operation, ...] = ("read", "write")
BOUND = 0.9


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    with Peer("shm") as peer:
        for operation in OPERATIONS:
            for size in SIZES:
                with (
                    baselines.Copy(peer, size, towards_peer=operation == "write") as copy,
                    probes.bandwidth(peer, "shm", operation, "native", size) as subject,
                ):
                    bound, measured = interleave([copy, subject], Budget(seconds=options.seconds))
                ratio = measured.median / bound.median
                figures.append(
                    Figure(
                        f"shm {operation.upper()} {text.size(size)}",
                        text.bandwidth(measured.median),
                        f"memcpy {text.bandwidth(bound.median)}",
                        f"{ratio:.3f}",
                        f"≥ {BOUND}",
                        ratio >= BOUND,
                    )
                )
    return figures


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
