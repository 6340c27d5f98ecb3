"""Plots: a histogram of latencies, or a curve over sizes. Only this module needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verbena import errors
from verbena.cli import text
from verbena.cli.measure.stats import Summary

# Narrower bins would show the clock's resolution.
MIN_BIN_NS = 20.0
SUBJECT, BASELINE, INK, GRID = "#5b3fa8", "#9aa0a6", "#2b2b33", "#e6e6ea"


def histogram(
    path: Path, *, title: str, subject: Sequence[float], baseline: Sequence[float], baseline_name: str
) -> None:
    """Plots both distributions on a logarithmic time axis, with their medians. Writes a PNG file."""
    figure, axes = _canvas(title)
    low = max(min(*subject, *baseline), 1.0)
    # The axis ends at p99.9, because a single late sample would compress all others.
    high = max(Summary.of(subject).quantiles[3], Summary.of(baseline).quantiles[3], low * 2) * 1.1
    edges = _edges(low, high)
    for samples, colour, name in ((baseline, BASELINE, baseline_name), (subject, SUBJECT, "verbena")):
        weights = [100 / len(samples)] * len(samples)
        median = Summary.of(samples).median
        label = f"{name}, median {text.duration(median)}"
        axes.hist(samples, bins=edges, weights=weights, color=colour, alpha=0.75, label=label)
        axes.axvline(median, color=colour, linewidth=1.2, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(low * 0.95, high)
    places = _time_ticks(low, high)
    decades = [place for place in places if math.log10(place) % 1 == 0]
    _ticks(axes.xaxis, decades if len(places) > 10 else places, text.duration)
    axes.set_xlabel("time per operation (log scale; the slowest 0.1 % lie to the right)")
    axes.set_ylabel("share of samples, %")
    _save(figure, axes, path)


def curve(
    path: Path,
    *,
    title: str,
    sizes: Sequence[int],
    subject: Sequence[float],
    baseline: Sequence[float],
    baseline_name: str,
    unit: str,
) -> None:
    """Plots bandwidth (`unit` "B/s") or rate ("ops/s") over sizes, for subject and baseline. Writes a PNG
    file."""
    figure, axes = _canvas(title)
    scale, prefix = (1e9, "GB/s") if unit == "B/s" else (1e6, "million operations/s")
    axes.plot(sizes, [value / scale for value in baseline], color=BASELINE, marker="o", label=baseline_name)
    axes.plot(sizes, [value / scale for value in subject], color=SUBJECT, marker="o", label="verbena")
    axes.set_xscale("log", base=2)
    _ticks(axes.xaxis, sizes, lambda value: text.size(round(value)))
    if len(sizes) > 8:
        axes.tick_params(axis="x", labelrotation=45)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("size of one operation")
    axes.set_ylabel(prefix)
    _save(figure, axes, path)


def require() -> None:
    """Raises UnsupportedError if matplotlib is missing. Call it before measuring."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise errors.UnsupportedError(
            "matplotlib is not installed",
            operation="draw the plot",
            remedy="run `pip install matplotlib`, or omit --plot",
        ) from error


def _canvas(title: str) -> tuple[Any, Any]:
    require()
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", color=INK, fontsize=12)
    axes.set_axisbelow(True)
    axes.grid(color=GRID)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _ticks(axis: Any, places: Sequence[float], words: Any) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(FixedFormatter([words(place) for place in places]))
    axis.set_minor_locator(NullLocator())


def _edges(low: float, high: float) -> list[float]:
    growth = (high / low) ** (1 / 80)
    edges = [low]
    while edges[-1] < high:
        edges.append(max(edges[-1] * growth, edges[-1] + MIN_BIN_NS))
    return edges


def _time_ticks(low: float, high: float) -> list[float]:
    """Returns ticks at 1, 2, 5, 10, 20 … within the axis; closer ones for a short axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low > 8 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(frameon=False)
    figure.savefig(path, format="png")
