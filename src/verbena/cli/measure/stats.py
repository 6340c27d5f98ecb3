"""Summary statistics of samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))


@dataclass(frozen=True)
class Summary:
    """The distribution of samples, in their own unit."""

    count: int
    minimum: float
    maximum: float
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Summary:
        """Computes nearest-rank quantiles, so that each value is one that was measured. Raises ValueError
        without samples."""
        if not samples:
            raise ValueError("there are no samples to summarise")
        ordered = sorted(samples)
        ranks = (max(0, math.ceil(quantile * len(ordered)) - 1) for _, quantile in QUANTILES)
        return cls(len(ordered), ordered[0], ordered[-1], tuple(ordered[rank] for rank in ranks))

    @property
    def median(self) -> float:
        return self.quantiles[0]

    def columns(self) -> list[tuple[str, float]]:
        """Names and values, in display order."""
        named = [(name, value) for (name, _), value in zip(QUANTILES, self.quantiles, strict=True)]
        return [("min", self.minimum), *named, ("max", self.maximum)]

    def as_json(self) -> dict[str, float]:
        return {"count": self.count, **{name: round(value, 3) for name, value in self.columns()}}


def median_of_medians(rounds: Sequence[Sequence[float]]) -> float:
    """The median of the rounds' medians, which one disturbed round does not change."""
    return statistics.median(statistics.median(samples) for samples in rounds)
