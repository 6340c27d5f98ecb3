"""Processor time that the host of a virtual machine takes away (steal time), to keep it out of
measurements."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

TICKS_PER_S = 100

Measured = TypeVar("Measured")


def stolen_ticks() -> int:
    """The kernel's count of steal time, in ticks of 10 ms."""
    with open("/proc/stat", encoding="ascii") as lines:
        return int(lines.readline().split()[8])


def calmest(measure: Callable[[], Measured], *, tries: int, enough: float) -> tuple[Measured, float]:
    """Measures up to `tries` times, until the share of steal time is at most `enough`. Returns the
    measurement with the lowest share, and that share."""
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
