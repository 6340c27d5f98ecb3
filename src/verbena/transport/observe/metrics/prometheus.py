"""Renders metrics in the Prometheus text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verbena.transport.observe.metrics.counters import BOUNDS_NS, Histogram, Snapshot
from verbena.transport.observe.metrics.table import LATENCY_BUCKETS, METRICS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render(snapshot: Snapshot) -> str:
    """Returns the text of /metrics."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, snapshot))


def _lines(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help.translate(_HELP)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for values, value in metric.read(snapshot):
        labels = list(zip(metric.labels, values, strict=True))
        if isinstance(value, Histogram):
            yield from _histogram(metric.name, labels, value)
        else:
            yield f"{metric.name}{_braces(labels)} {value}"


def _histogram(name: str, labels: list[tuple[str, str]], histogram: Histogram) -> Iterator[str]:
    for bucket in LATENCY_BUCKETS:
        bound = ("le", f"{BOUNDS_NS[bucket] / 1e9:.12g}")
        yield f"{name}_bucket{_braces([*labels, bound])} {histogram.below(bucket)}"
    count = histogram.count
    yield f"{name}_bucket{_braces([*labels, ('le', '+Inf')])} {count}"
    yield f"{name}_sum{_braces(labels)} {histogram.sum_ns / 1e9!r}"
    yield f"{name}_count{_braces(labels)} {count}"


def _braces(labels: Sequence[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{value.translate(_LABEL)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""
