"""Metrics of the registry in Prometheus format, defined by one table."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

Sample = tuple[tuple[object, ...], float]  # label values and the value


class Metrics:
    """Counters of one server since its start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.in_progress = 0
        self.rate_limited = 0
        self.refused_connections: Callable[[], int] = lambda: 0
        self.events: Counter[tuple[str, str]] = Counter()
        self.webhooks: Counter[str] = Counter()
        self.collected: Counter[str] = Counter()
        self.stored: Callable[[], Mapping[str, int]] = dict
        self.nodes: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        """(metric, label, value) of this node's exchange with other nodes."""
        self.bucket: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        """(metric, label, value) of the bucket, if there is one."""
        self._times: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def request(self, method: str, endpoint: str, status: int, seconds: float) -> None:
        self.requests[method, endpoint, status] += 1
        times = self._times.setdefault(endpoint, [0] * (len(BOUNDS_S) + 1))
        times[bisect.bisect_left(BOUNDS_S, seconds)] += 1
        self._sums[endpoint] += seconds  # type: ignore[assignment]

    def page(self) -> str:
        lines = [line for metric in TABLE for line in metric.lines(self)]
        return "\n".join((*lines, *self._histogram(), ""))

    def _histogram(self) -> Iterator[str]:
        name = DURATION
        yield f"# HELP {name} {DURATION_HELP}"
        yield f"# TYPE {name} histogram"
        for endpoint, counts in self._times.items():
            total = 0
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{endpoint="{endpoint}",le="{bound}"}} {total}'
            yield f'{name}_sum{{endpoint="{endpoint}"}} {self._sums[endpoint]!r}'
            yield f'{name}_count{{endpoint="{endpoint}"}} {total}'


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    read: Callable[[Metrics], Iterable[Sample]]

    def lines(self, metrics: Metrics) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, value in self.read(metrics):
            inner = ",".join(f'{key}="{text}"' for key, text in zip(self.labels, values, strict=True))
            yield f"{self.name}{{{inner}}} {value}" if inner else f"{self.name} {value}"


def _one(name: str) -> Callable[[Metrics], Iterable[Sample]]:
    return lambda metrics: [((), getattr(metrics, name))]


def _counter(name: str) -> Callable[[Metrics], Iterable[Sample]]:
    def read(metrics: Metrics) -> Iterable[Sample]:
        counts: Counter[Any] = getattr(metrics, name)
        for key, value in sorted(counts.items()):
            yield key if isinstance(key, tuple) else (key,), value

    return read


DURATION = "verbena_registry_request_seconds"
DURATION_HELP = "Duration of requests, from their headers to the end of the response."


def _of_nodes(name: str) -> Callable[[Metrics], Iterable[Sample]]:
    return lambda metrics: _named(name, metrics.nodes())


def _of_bucket(name: str) -> Callable[[Metrics], Iterable[Sample]]:
    return lambda metrics: _named(name, metrics.bucket())


def _named(name: str, metric_values: Iterable[tuple[str, str, float]]) -> list[Sample]:
    return [((text,) if text else (), value) for metric, text, value in metric_values if metric == name]


TABLE = (
    Metric(
        "verbena_registry_requests_total",
        "counter",
        ("method", "endpoint", "status"),
        "Requests by method, endpoint and status.",
        _counter("requests"),
    ),
    Metric(
        "verbena_registry_received_bytes_total",
        "counter",
        (),
        "Bytes of blobs and manifests received from clients.",
        _one("received_bytes"),
    ),
    Metric(
        "verbena_registry_sent_bytes_total",
        "counter",
        (),
        "Bytes of blobs and manifests sent to clients.",
        _one("sent_bytes"),
    ),
    Metric(
        "verbena_registry_requests_in_progress",
        "gauge",
        (),
        "Requests in progress.",
        _one("in_progress"),
    ),
    Metric(
        "verbena_registry_rate_limited_total",
        "counter",
        (),
        "Requests rejected by the rate limit.",
        _one("rate_limited"),
    ),
    Metric(
        "verbena_registry_connections_refused_total",
        "counter",
        (),
        "Connections rejected by the connection limit.",
        lambda metrics: [((), metrics.refused_connections())],
    ),
    Metric(
        "verbena_registry_events_total",
        "counter",
        ("action", "kind"),
        "Pushes, pulls, mounts and deletes.",
        _counter("events"),
    ),
    Metric(
        "verbena_registry_webhooks_total",
        "counter",
        ("outcome",),
        "Webhook notifications by outcome.",
        _counter("webhooks"),
    ),
    Metric(
        "verbena_registry_collected_total",
        "counter",
        ("kind",),
        "Entries removed by garbage collection.",
        _counter("collected"),
    ),
    Metric(
        "verbena_registry_node_sent_bytes_total",
        "counter",
        (),
        "Bytes of blobs sent to other nodes.",
        _of_nodes("sent"),
    ),
    Metric(
        "verbena_registry_node_received_bytes_total",
        "counter",
        ("source",),
        "Bytes of blobs received from other nodes and upstream registries.",
        _of_nodes("received"),
    ),
    Metric(
        "verbena_registry_node_fetches_total",
        "counter",
        ("outcome",),
        "Blobs fetched from other nodes or upstream, by outcome.",
        _of_nodes("fetches"),
    ),
    Metric(
        "verbena_registry_node_fetches_in_progress",
        "gauge",
        (),
        "Blobs being fetched.",
        _of_nodes("fetching"),
    ),
    Metric(
        "verbena_registry_node_corrupt_blobs_total",
        "counter",
        ("node",),
        "Blobs of which the node sent wrong bytes.",
        _of_nodes("corrupt_blobs"),
    ),
    Metric(
        "verbena_registry_node_stalls_total",
        "counter",
        ("node",),
        "Pieces that the node did not send in time.",
        _of_nodes("stalls"),
    ),
    Metric(
        "verbena_registry_node_up",
        "gauge",
        ("node",),
        "1 if the node can be used, else 0.",
        _of_nodes("up"),
    ),
    Metric(
        "verbena_registry_replicas_total",
        "counter",
        ("outcome",),
        "Copies of pushes to other nodes, by outcome.",
        _of_nodes("replicas"),
    ),
    Metric(
        "verbena_registry_bucket_bytes_total",
        "counter",
        ("direction",),
        "Bytes of blobs sent to and received from the bucket.",
        _of_bucket("bytes"),
    ),
    Metric(
        "verbena_registry_bucket_failures_total",
        "counter",
        (),
        "Requests to the bucket that failed after all retries.",
        _of_bucket("failures"),
    ),
    Metric(
        "verbena_registry_bucket_recalls_total",
        "counter",
        (),
        "Blobs fetched from the bucket.",
        _of_bucket("recalls"),
    ),
    Metric(
        "verbena_registry_bucket_cached_bytes",
        "gauge",
        (),
        "Bytes of cached files of blobs in the bucket.",
        _of_bucket("cached"),
    ),
    Metric(
        "verbena_registry_stored",
        "gauge",
        ("kind",),
        "Stored repositories, blobs, blob bytes, manifests, tags and uploads.",
        lambda metrics: [((kind,), count) for kind, count in metrics.stored().items()],
    ),
)


def reference() -> str:
    """Returns the reference page of the metrics."""
    lines = [
        "# Registry metrics",
        "",
        "`verbena registry` serves these metrics at `/metrics` of `[metrics] listen`. Counters start at 0.",
        "",
        "| name | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    rows = [(metric.name, metric.kind, metric.labels, metric.help) for metric in TABLE]
    rows.append((DURATION, "histogram", ("endpoint",), DURATION_HELP))
    for name, kind, labels, meaning in rows:
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS_S)
    return "\n".join((*lines, "", f"The histogram's bounds are {bounds} seconds.", ""))
