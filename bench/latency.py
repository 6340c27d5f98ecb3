"""A round trip beside a bare baseline and UCX: the measuring loop and the figures that the latency benchmarks
of several wires share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench import ucx
from bench.figure import Figure
from verbena.cli import text
from verbena.cli.measure.rounds import Budget, Probe, interleave

TURNS = 3


@dataclass(frozen=True)
class Comparison:
    """What a round trip is compared with. A bound of None is not checked."""

    name: str
    baseline: str
    bound: float | None
    ucx: str
    ucx_tests: Iterable[str]
    ucx_round_trip_ns: Callable[[str], float]
    ucx_bound: float | None


def figures(baseline: Probe, subject: Probe, comparison: Comparison, *, seconds: float) -> list[Figure]:
    """Measures baseline, subject and the tests of UCX in turns; a figure is the median of the turns."""
    subject_medians: list[float] = []
    baseline_medians: list[float] = []
    ucx_medians: dict[str, list[float]] = {}
    if ucx.available():
        ucx_medians = {test: [] for test in comparison.ucx_tests}
    for _ in range(TURNS):
        series = interleave([baseline, subject], Budget(seconds=seconds / TURNS))
        baseline_medians.append(series[0].median)
        subject_medians.append(series[1].median)
        for test, medians in ucx_medians.items():
            medians.append(comparison.ucx_round_trip_ns(test))

    measured_ns = statistics.median(subject_medians)

    def figure(other: str, other_ns: float, bound: float | None) -> Figure:
        ratio = measured_ns / other_ns
        return Figure(
            comparison.name,
            text.duration(measured_ns),
            f"{other} {text.duration(other_ns)}",
            f"{ratio:.2f}",
            "–" if bound is None else f"≤ {bound:g}",
            None if bound is None else ratio <= bound,
        )

    found = [figure(comparison.baseline, statistics.median(baseline_medians), comparison.bound)]
    for test, medians in ucx_medians.items():
        found.append(figure(f"{comparison.ucx}, {test}", statistics.median(medians), comparison.ucx_bound))
    if not ucx_medians:
        measured = text.duration(measured_ns)
        found.append(Figure(comparison.name, measured, "UCX is not installed (ucx-utils)", "–"))
    return found
