"""Runs probes in alternating short rounds, so that noise and clock changes affect all of them equally."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verbena.cli.measure.probes import Probe
from verbena.cli.measure.stats import Summary, median_of_medians

ROUND_S = 0.1  # also bounds how long a signal waits for a native loop


@dataclass
class Series:
    """The samples of one probe, by round."""

    rounds: list[Sequence[float]] = field(default_factory=list)

    @property
    def samples(self) -> list[float]:
        return [sample for samples in self.rounds for sample in samples]

    @property
    def median(self) -> float:
        return median_of_medians(self.rounds)

    def summary(self) -> Summary:
        return Summary.of(self.samples)


@dataclass(frozen=True)
class Budget:
    """How much to measure: operations per probe, or seconds for all probes together."""

    iterations: int | None = None
    seconds: float | None = None
    rounds: int = 10


def interleave(
    probes: Sequence[Probe], budget: Budget, *, progress: Callable[[float], None] | None = None
) -> list[Series]:
    """Returns one series per probe. A first, discarded run warms each probe up; with a time budget it also
    determines the length of rounds."""
    series = [Series() for _ in probes]
    if budget.iterations is not None:
        counts = [max(1, budget.iterations // budget.rounds)] * len(probes)
        for probe, count in zip(probes, counts, strict=True):
            probe.run(min(count, 100))
        total = -(-budget.iterations // counts[0])
        for done in range(total):
            _round(probes, counts, series)
            if progress:
                progress((done + 1) / total)
        return series

    seconds = budget.seconds if budget.seconds is not None else 2.0
    share_s = min(ROUND_S, seconds / len(probes) / budget.rounds)
    counts = [_count_for(probe, share_s) for probe in probes]
    start = time.monotonic()
    while not series[0].rounds or time.monotonic() - start < seconds:
        _round(probes, counts, series)
        if progress:
            progress((time.monotonic() - start) / seconds)
    return series


def _round(probes: Sequence[Probe], counts: Sequence[int], series: Sequence[Series]) -> None:
    for probe, count, one in zip(probes, counts, series, strict=True):
        one.rounds.append(probe.run(count))


def _count_for(probe: Probe, seconds: float) -> int:
    """Returns how many operations fill `seconds`; increases the count until a run is long enough to time."""
    count = probe.least
    while True:
        # The shorter of two runs, because waking the peer may take longer than all the operations.
        elapsed = min(_timed(probe, count), _timed(probe, count))
        if elapsed >= seconds / 4 or count >= 1 << 22:
            return max(probe.least, int(count * seconds / max(elapsed, 1e-9)))
        count *= 8 if elapsed < seconds / 64 else 2


def _timed(probe: Probe, count: int) -> float:
    start = time.monotonic()
    probe.run(count)
    return time.monotonic() - start
