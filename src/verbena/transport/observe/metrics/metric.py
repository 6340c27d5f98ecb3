"""A row of a table of metrics: what it is called, and how its samples are read. Depends on nothing, so that
the tables of all services can use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Source = TypeVar("Source")


@dataclass(frozen=True)
class Buckets:
    """The value of a histogram: for each upper bound, the number of values below it; number and sum of all
    values. Bounds are texts, in the unit of the metric."""

    bounds: Sequence[str]
    below: Sequence[int]
    count: int
    sum: float


Value = int | float | Buckets
Sample = tuple[tuple[str, ...], Value]  # label values in the order of the metric's labels, and the value


@dataclass(frozen=True)
class Metric(Generic[Source]):
    """One metric. `read` returns its samples from what was collected; none: it does not apply now. `source`:
    where the value comes from, for the reference page."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    read: Callable[[Source], Iterable[Sample]]
    source: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(self.name + part for part in parts)


def table_rows(metrics: Iterable[Metric[Source]], *, with_source: bool = False) -> Iterator[str]:
    """Yields the lines of a Markdown table of the metrics, its head included."""
    yield f"| name | type | labels | meaning |{' source |' * with_source}\n"
    yield f"|---|---|---|---|{'---|' * with_source}\n"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        row = f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"
        yield f"{row} {metric.source} |\n" if with_source else f"{row}\n"
