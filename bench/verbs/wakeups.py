"""Does an awaited READ cost more than an event loop's own wake-up?"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from array import array
from collections.abc import Sequence

from bench.figure import Figure, program
from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe
from verbena.cli.measure.rounds import Budget, interleave

SIZE = 64
BOUND = 1.2


class WakeUp(Probe):
    """An event loop's wake-up in nanoseconds: writes an eventfd and awaits the reader's callback."""

    name = "eventfd wake-up"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def run(self, count: int) -> Sequence[float]:
        return self._loop.run_until_complete(self._wake(count))

    def close(self) -> None:
        self._loop.close()
        os.close(self._fd)

    async def _wake(self, count: int) -> Sequence[float]:
        loop, fd, clock = self._loop, self._fd, time.perf_counter_ns
        samples = array("d", bytes(8 * count))
        woken: asyncio.Future[None] = loop.create_future()

        def ring() -> None:
            os.eventfd_read(fd)
            woken.set_result(None)

        loop.add_reader(fd, ring)
        try:
            for index in range(count):
                start = clock()
                woken = loop.create_future()
                os.eventfd_write(fd, 1)
                await woken
                samples[index] = clock() - start
        finally:
            loop.remove_reader(fd)
        return samples


def measure(options: argparse.Namespace) -> list[Figure]:
    with (
        Peer("shm") as peer,
        WakeUp() as wake_up,
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
