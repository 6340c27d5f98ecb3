"""The result type and main function of the benchmark programs."""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Figure:
    """One line of results, with baseline and bound. `passed` is None for a line without a bound."""

    name: str
    measured: str
    baseline: str
    ratio: str
    bound: str = "–"
    passed: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "kept", False: "MISSED", None: "–"}[self.passed]

    @property
    def cells(self) -> list[str]:
        return [self.name, self.measured, self.baseline, self.ratio, self.bound, self.verdict]


class Ratio(NamedTuple):
    """The ratio of two things measured in turn, computed for each pair, because changes of the machine's
    speed affect both of a pair."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Ratio:
        ratios = [own / base for own, base in pairs]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


HEADER = ["figure", "measured", "baseline", "ratio", "bound", "verdict"]


def end_tidily() -> None:
    """Turns SIGTERM into SystemExit, so that servers are stopped and temporary folders removed."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def add_seconds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=4.0, help="time per measurement (default: 4)")


def program(
    measure: Callable[[argparse.Namespace], list[Figure]],
    *,
    description: str,
    arguments: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """The main function of a benchmark program: prints a table, or JSON for run.py."""
    parser = argparse.ArgumentParser(description=description)
    add_seconds(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    if arguments:
        arguments(parser)
    options = parser.parse_args()
    end_tidily()
    figures = measure(options)
    if options.json:
        json.dump([asdict(figure) for figure in figures], sys.stdout)
        return
    from verbena.cli import text

    print(text.table([HEADER, *(figure.cells for figure in figures)]))
