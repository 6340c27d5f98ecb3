"""Renders metrics in the Prometheus text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from verbena.transport.observe.metrics.metric import Buckets, Metric

Source = TypeVar("Source")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render(metrics: Iterable[Metric[Source]], source: Source) -> str:
    """Returns the text of these metrics, read from `source`."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric, source))


def _lines(metric: Metric[Source], source: Source) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help.translate(_HELP)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for values, value in metric.read(source):
        pairs = zip(metric.labels, values, strict=True)
        inner = ",".join(f'{label}="{text.translate(_LABEL)}"' for label, text in pairs)
        if isinstance(value, Buckets):
            yield from _histogram(metric.name, inner, value)
        else:
            yield f"{metric.name}{{{inner}}} {value}" if inner else f"{metric.name} {value}"


def _histogram(name: str, inner: str, value: Buckets) -> Iterator[str]:
    prefix = f'{name}_bucket{{{inner}{"," if inner else ""}le="'
    for bound, below in zip(value.bounds, value.below, strict=True):
        yield f'{prefix}{bound}"}} {below}'
    yield f'{prefix}+Inf"}} {value.count}'
    braces = f"{{{inner}}}" if inner else ""
    yield f"{name}_sum{braces} {value.sum!r}"
    yield f"{name}_count{braces} {value.count}"
