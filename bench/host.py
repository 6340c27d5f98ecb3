"""What the host of a virtual machine takes away from it, so that it is not taken for what is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

TICKS_PER_S = 100

Measured = TypeVar("Measured")


def stolen_ticks() -> int:
    """Ticks of 10 ms for which processors had work and were not there, as the kernel counts them."""
    with open("/proc/stat", encoding="ascii") as lines:
        return int(lines.readline().split()[8])


def calmest(measure: Callable[[], Measured], *, tries: int, enough: float) -> tuple[Measured, float]:
    """What was measured while the host took the least away, and which part of the processors' time that was:
    of so many tries, or of fewer if one is calm enough."""
    best: tuple[Measured, float] | None = None
    for _ in range(tries):
        began, ticks = time.perf_counter(), stolen_ticks()
        measured = measure()
        there = (time.perf_counter() - began) * TICKS_PER_S * (os.cpu_count() or 1)
        taken = (stolen_ticks() - ticks) / there
        if best is None or taken < best[1]:
            best = measured, taken
        if taken <= enough:
            break
    assert best is not None, "one try at least"
    return best
