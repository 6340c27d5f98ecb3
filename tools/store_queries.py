"""Parts of PromQL over the table of the store's metrics. A name or a label that the table lacks raises."""

from __future__ import annotations

from typing import Any


class Queries:
    """`scope`: a matcher that every selector has."""

    def __init__(self, scope: str) -> None:
        from verbena.kv.observe.table import METRICS

        self._scope = scope
        self._metrics = {series: metric for metric in METRICS for series in metric.series}

    def select(self, name: str, **labels: str) -> str:
        """Returns a selector. `labels`: values, or matchers such as `!~"a|b"`."""
        self._metric(name, labels)
        matchers = [f"{label}{_matcher(value)}" for label, value in labels.items()]
        return f"{name}{{{','.join([self._scope, *matchers])}}}"

    def rate(self, name: str, *by: str, over: str = "5m") -> str:
        """Returns the growth per second of a counter, summed by these labels."""
        metric = self._metric(name, by)
        if metric.kind == "gauge":
            raise ValueError(f"{name} is no counter")
        return f"sum by ({', '.join(('instance', *by))}) (rate({self.select(name)}[{over}]))"

    def quantile(self, percent: int, name: str, *by: str, over: str = "5m") -> str:
        """Returns a percentile of a histogram, by these labels."""
        rates = self.rate(f"{name}_bucket", *by, "le", over=over)
        return f"histogram_quantile({percent / 100:g}, {rates})"

    def _metric(self, name: str, labels: Any) -> Any:
        metric = self._metrics[name]
        unknown = set(labels) - {*metric.labels, "le"}
        if unknown:
            raise ValueError(f"{name} has no label {', '.join(sorted(unknown))}")
        return metric


def _matcher(value: str) -> str:
    return value if value[0] in "=!" else f'="{value}"'
