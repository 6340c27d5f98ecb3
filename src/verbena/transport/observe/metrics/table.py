"""The one table of metrics: what the page shows, and what docs/reference/metrics.md says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from verbena.transport.observe.metrics.counters import OPERATIONS, Histogram, Snapshot

Value = int | float | Histogram
Sample = tuple[tuple[str, ...], Value]  # the labels' values, in the order of the metric's labels
Read = Callable[[Snapshot], Iterable[Sample]]

TYPES = ("send", "recv", "read", "write")
STATES = ("connected", "disconnected", "unavailable")

_FIRST, _LAST = 35, 135  # buckets below 1.024 µs and below 34.4 s
# Every second bucket of ours: two per doubling.
LATENCY_BUCKETS = tuple(range(_FIRST, _LAST + 1, 2))


@dataclass(frozen=True)
class Metric:
    """A row: its name, what kind of value it is, its labels, its meaning, and how a snapshot gives it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    read: Read


def _of(count: str) -> Read:
    return lambda now: [((wire,), figures[count]) for wire, figures in now.wires.items()]


def _by_type(unit: str) -> Read:
    return lambda now: [
        ((kind, wire), figures[f"{kind}_{unit}"]) for wire, figures in now.wires.items() for kind in TYPES
    ]


def _times(now: Snapshot) -> Iterable[Sample]:
    return [
        ((operation, wire), figures.times[operation])
        for wire, figures in now.wires.items()
        for operation in OPERATIONS
    ]


def _sessions(now: Snapshot) -> Iterable[Sample]:
    counts = Counter((session.state, session.wire or "") for session in now.sessions)
    shown = dict.fromkeys([("connected", wire) for wire in now.open_wires] + [(s, "") for s in STATES[1:]], 0)
    return list((shown | counts).items())


def _by_reason(counts: Mapping[str, int]) -> Iterable[Sample]:
    return [((reason,), count) for reason, count in sorted(counts.items())]


# Of what wires count by themselves, that which is there now and may become less.
_PRESENT = ("connections", "half_open")


def _wire_events(now: Snapshot) -> Iterable[Sample]:
    return [
        ((event, wire), count)
        for wire, counts in now.wire_counts.items()
        for event, count in counts.items()
        if event not in _PRESENT
    ]


def _wire_connections(now: Snapshot) -> Iterable[Sample]:
    """All of them are `connections`; those that shake hands are among them."""
    return [
        sample
        for wire, counts in now.wire_counts.items()
        for sample in (
            (("established", wire), counts["connections"] - counts["half_open"]),
            (("half_open", wire), counts["half_open"]),
        )
    ]


METRICS: tuple[Metric, ...] = (
    Metric(
        "verbena_rdma_operations_total",
        "counter",
        ("type", "wire"),
        "Operations: messages sent and received, one-sided reads and writes of ours that completed.",
        _by_type("ops"),
    ),
    Metric(
        "verbena_rdma_bytes_total",
        "counter",
        ("type", "wire"),
        "Bytes moved by those operations, message headers included.",
        _by_type("bytes"),
    ),
    Metric(
        "verbena_rdma_latency_seconds",
        "histogram",
        ("op", "wire"),
        "Time from start to completion of our calls (until the answer is here), reads and writes.",
        _times,
    ),
    Metric(
        "verbena_rdma_connections",
        "gauge",
        ("wire",),
        "Links that are up.",
        lambda now: [((wire,), count) for wire, count in now.connections.items()],
    ),
    Metric(
        "verbena_rdma_completion_errors_total",
        "counter",
        ("wire",),
        "Work requests that completed in error; those flushed after another's error are not counted.",
        _of("completion_errors"),
    ),
    Metric(
        "verbena_rdma_retry_exceeded_total",
        "counter",
        ("wire",),
        "Of these, the ones that the wire gave up repeating (RETRY_EXC_ERR, RNR_RETRY_EXC_ERR).",
        _of("retry_exceeded"),
    ),
    Metric(
        "verbena_sessions",
        "gauge",
        ("state", "wire"),
        "Open sessions by state; one without a link has an empty wire.",
        _sessions,
    ),
    Metric(
        "verbena_sessions_opened_total",
        "counter",
        (),
        "Sessions agreed upon, at either end.",
        lambda now: [((), now.opened)],
    ),
    Metric(
        "verbena_sessions_ended_total",
        "counter",
        ("reason",),
        "Sessions that ended: closed here, closed by the peer, or an error's code.",
        lambda now: _by_reason(now.ended),
    ),
    Metric(
        "verbena_session_links_total",
        "counter",
        ("wire",),
        "Links made: one per session, and one for each time that its wire broke or changed.",
        _of("links"),
    ),
    Metric(
        "verbena_session_messages_replayed_total",
        "counter",
        ("wire",),
        "Messages sent again on a new link, since the peer had not acknowledged them.",
        _of("replayed_messages"),
    ),
    Metric(
        "verbena_session_duplicates_dropped_total",
        "counter",
        ("wire",),
        "Messages that had arrived before, and were not delivered again.",
        _of("repeated_messages"),
    ),
    Metric(
        "verbena_session_messages_damaged_total",
        "counter",
        ("wire",),
        "Messages and payloads whose checksum was wrong.",
        _of("damaged_messages"),
    ),
    Metric(
        "verbena_session_operations_failed_total",
        "counter",
        ("wire",),
        "Calls, reads and writes of ours that failed.",
        _of("failed_calls"),
    ),
    Metric(
        "verbena_refused_total",
        "counter",
        ("reason",),
        "Hellos and links that a listener turned down, by the error's code.",
        lambda now: _by_reason(now.refused),
    ),
    Metric(
        "verbena_regions",
        "gauge",
        (),
        "Memory regions exposed to peers.",
        lambda now: [((), now.regions)],
    ),
    Metric(
        "verbena_registration_cache_lookups_total",
        "counter",
        ("result",),
        "Transfers of buffers that may be kept registered: `hit` if they were, `miss` if not.",
        lambda now: [(("hit",), now.registrations.hits), (("miss",), now.registrations.misses)],
    ),
    Metric(
        "verbena_registration_cache_evictions_total",
        "counter",
        (),
        "Kept registrations given up for want of room, or because the wire could register no more.",
        lambda now: [((), now.registrations.evictions)],
    ),
    Metric(
        "verbena_registration_cache_bytes",
        "gauge",
        (),
        "Memory of programs that is kept registered; `max_mr_size` at most.",
        lambda now: [((), now.registrations.bytes)],
    ),
    Metric(
        "verbena_pool_slots",
        "gauge",
        ("pool", "wire"),
        "Registered buffers that messages may use at most.",
        lambda now: [((pool.kind, pool.wire), pool.slots) for pool in now.pools],
    ),
    Metric(
        "verbena_pool_slots_used",
        "gauge",
        ("pool", "wire"),
        "Of these: sends that the peer has not acknowledged, receives that are posted.",
        lambda now: [((pool.kind, pool.wire), pool.used) for pool in now.pools],
    ),
    Metric(
        "verbena_wire_available",
        "gauge",
        ("wire",),
        "1: the wire is open; 0: it is wanted, and could not be opened.",
        lambda now: [
            *(((wire,), 1) for wire in now.open_wires),
            *(((wire,), 0) for wire in now.absent_wires if wire not in now.open_wires),
        ],
    ),
    Metric(
        "verbena_wire_events_total",
        "counter",
        ("event", "wire"),
        "What quic counts itself: datagrams, bytes, handshakes, callers and packets that it did not take.",
        _wire_events,
    ),
    Metric(
        "verbena_wire_connections",
        "gauge",
        ("state", "wire"),
        "Connections of quic, each for any number of links; half_open: the caller still shakes hands.",
        _wire_connections,
    ),
    Metric(
        "verbena_node_info",
        "gauge",
        ("node",),
        "1; the label is the node's name.",
        lambda now: [((now.node,), 1)],
    ),
    Metric(
        "verbena_uptime_seconds",
        "gauge",
        (),
        "Time since the node was made.",
        lambda now: [((), round(now.uptime_s, 3))],
    ),
)

PAGE_HEAD = """\
# Metrics

What a node shows at `http://…/metrics` in the format of Prometheus, when `[metrics] listen` names an address
or the program calls `node.serve_metrics(address)`: [how](../guide/observe.md). Counters count since the node
was made, over all its sessions, those that have ended too.

| name | kind | labels | |
|---|---|---|---|
"""
PAGE_FOOT = """
`wire` is shm, ibv, iwarp or quic. `type` is send, recv, read or write; `op` is call, read or write; `pool` is
send or receive; `event` is one of those that [quic](quic-options.md) counts. The histogram's buckets begin at
1.024 µs and go up to 34 s, two per doubling: the bounds are powers of two in nanoseconds, and half-way
between them, since that is how times are counted. A time of exactly a bound is in the bucket above it.
"""


def page() -> str:
    """docs/reference/metrics.md."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n")
    return PAGE_HEAD + "".join(rows) + PAGE_FOOT
