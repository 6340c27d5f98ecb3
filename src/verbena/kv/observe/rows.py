"""Short forms of rows: metrics whose value is one field of what was collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from verbena.kv.observe.snapshot import StoreSnapshot
from verbena.transport.observe.metrics.metric import Metric, Sample, Value

Kind = Literal["counter", "gauge"]
StoreMetric = Metric[StoreSnapshot]

_STATES = {"ok": 1, "err": 0, "fail": 0}


def number(value: Any) -> Value:
    """Converts a field of INFO: a number, a text with a number, or ok and err."""
    if isinstance(value, str):
        return _STATES[value] if value in _STATES else float(value)
    return int(value) if isinstance(value, bool) else value


def of_info(name: str, kind: Kind, field: str, help: str) -> StoreMetric:
    """A metric of one field of INFO. While INFO lacks the field, there is no sample."""

    def read(now: StoreSnapshot) -> Iterable[Sample]:
        return [((), number(now.fields[field]))] if field in now.fields else []

    return Metric(name, kind, (), help, read, f"INFO `{field}`")


def of_cluster(name: str, kind: Kind, field: str, help: str) -> StoreMetric:
    """A metric of one field of CLUSTER INFO."""

    def read(now: StoreSnapshot) -> Iterable[Sample]:
        return [((), number(now.cluster.fields[field]))] if now.cluster is not None else []

    return Metric(name, kind, (), help, read, f"CLUSTER INFO `{field}`")


def of_session(name: str, kind: Kind, field: str, help: str) -> StoreMetric:
    """A metric of one counter of the frontend for sessions."""

    def read(now: StoreSnapshot) -> Iterable[Sample]:
        return [((), now.sessions[field])] if field in now.sessions else []

    return Metric(name, kind, (), help, read, "frontend for sessions")


def by_label(values: Mapping[str, Value]) -> list[Sample]:
    """Returns samples with one label, sorted."""
    return [((label,), value) for label, value in sorted(values.items())]
