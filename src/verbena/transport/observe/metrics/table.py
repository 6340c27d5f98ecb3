"""The table of a node's metrics. The Prometheus text and docs/reference/metrics.md are generated from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from verbena.transport.observe.metrics.counters import BOUNDS_NS, OPERATIONS, Histogram, Snapshot
from verbena.transport.observe.metrics.metric import Buckets, Metric, Sample, table_rows

Read = Callable[[Snapshot], Iterable[Sample]]

TYPES = ("send", "recv", "read", "write")
STATES = ("connected", "disconnected", "unavailable")

_FIRST, _LAST = 35, 135  # buckets below 1.024 µs and below 34.4 s
# Every second native bucket: two per doubling.
LATENCY_BUCKETS = tuple(range(_FIRST, _LAST + 1, 2))
_LATENCY_BOUNDS = tuple(f"{BOUNDS_NS[bucket] / 1e9:.12g}" for bucket in LATENCY_BUCKETS)


def _of(count: str) -> Read:
    return lambda now: [((wire,), counters[count]) for wire, counters in now.wires.items()]


def _by_type(unit: str) -> Read:
    return lambda now: [
        ((kind, wire), counters[f"{kind}_{unit}"]) for wire, counters in now.wires.items() for kind in TYPES
    ]


def _times(now: Snapshot) -> Iterable[Sample]:
    return [
        ((operation, wire), _buckets(counters.times[operation]))
        for wire, counters in now.wires.items()
        for operation in OPERATIONS
    ]


def _buckets(times: Histogram) -> Buckets:
    below = list(accumulate(times.buckets))
    return Buckets(
        _LATENCY_BOUNDS, [below[bucket] for bucket in LATENCY_BUCKETS], below[-1], times.sum_ns / 1e9
    )


def _sessions(now: Snapshot) -> Iterable[Sample]:
    counts = Counter((session.state, session.wire or "") for session in now.sessions)
    shown = dict.fromkeys([("connected", wire) for wire in now.open_wires] + [(s, "") for s in STATES[1:]], 0)
    return list((shown | counts).items())


def _by_reason(counts: Mapping[str, int]) -> Iterable[Sample]:
    return [((reason,), count) for reason, count in sorted(counts.items())]


# Counters of a wire that are gauges.
_PRESENT = ("connections", "half_open")


def _wire_events(now: Snapshot) -> Iterable[Sample]:
    return [
        ((event, wire), count)
        for wire, counts in now.wire_counts.items()
        for event, count in counts.items()
        if event not in _PRESENT
    ]


def _wire_connections(now: Snapshot) -> Iterable[Sample]:
    """Splits the connections of each wire; `connections` includes half-open ones."""
    return [
        sample
        for wire, counts in now.wire_counts.items()
        for sample in (
            (("established", wire), counts["connections"] - counts["half_open"]),
            (("half_open", wire), counts["half_open"]),
        )
    ]


METRICS: tuple[Metric[Snapshot], ...] = (
    Metric(
        "verbena_rdma_operations_total",
        "counter",
        ("type", "wire"),
        "Completed operations: messages sent and received, one-sided reads and writes of this node.",
        _by_type("ops"),
    ),
    Metric(
        "verbena_rdma_bytes_total",
        "counter",
        ("type", "wire"),
        "Bytes moved by operations, including message headers.",
        _by_type("bytes"),
    ),
    Metric(
        "verbena_rdma_latency_seconds",
        "histogram",
        ("op", "wire"),
        "Latency of this node's calls (until the reply), reads and writes.",
        _times,
    ),
    Metric(
        "verbena_rdma_connections",
        "gauge",
        ("wire",),
        "Links that are up, by wire.",
        lambda now: [((wire,), count) for wire, count in now.connections.items()],
    ),
    Metric(
        "verbena_rdma_completion_errors_total",
        "counter",
        ("wire",),
        "Work requests that completed in error, without those flushed after an earlier error.",
        _of("completion_errors"),
    ),
    Metric(
        "verbena_rdma_retry_exceeded_total",
        "counter",
        ("wire",),
        "Work requests that exceeded their retries (RETRY_EXC_ERR, RNR_RETRY_EXC_ERR).",
        _of("retry_exceeded"),
    ),
    Metric(
        "verbena_sessions",
        "gauge",
        ("state", "wire"),
        "Open sessions by state; the wire is empty for a session without a link.",
        _sessions,
    ),
    Metric(
        "verbena_sessions_opened_total",
        "counter",
        (),
        "Sessions opened, as client or server.",
        lambda now: [((), now.opened)],
    ),
    Metric(
        "verbena_sessions_ended_total",
        "counter",
        ("reason",),
        "Sessions ended: closed here, closed by the peer, or the code of the error.",
        lambda now: _by_reason(now.ended),
    ),
    Metric(
        "verbena_session_links_total",
        "counter",
        ("wire",),
        "Links established: one per session and one for each reconnect or change of wire.",
        _of("links"),
    ),
    Metric(
        "verbena_session_messages_replayed_total",
        "counter",
        ("wire",),
        "Unacknowledged messages that were repeated on a new link.",
        _of("replayed_messages"),
    ),
    Metric(
        "verbena_session_duplicates_dropped_total",
        "counter",
        ("wire",),
        "Repeated messages that had already been delivered and were dropped.",
        _of("repeated_messages"),
    ),
    Metric(
        "verbena_session_messages_damaged_total",
        "counter",
        ("wire",),
        "Messages and payloads with a wrong checksum.",
        _of("damaged_messages"),
    ),
    Metric(
        "verbena_session_operations_failed_total",
        "counter",
        ("wire",),
        "Calls, reads and writes of this node that failed.",
        _of("failed_calls"),
    ),
    Metric(
        "verbena_refused_total",
        "counter",
        ("reason",),
        "Rejected handshakes, links and cluster messages, by error code.",
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
        "Look-ups in the registration cache: `hit` or `miss`.",
        lambda now: [(("hit",), now.registrations.hits), (("miss",), now.registrations.misses)],
    ),
    Metric(
        "verbena_registration_cache_evictions_total",
        "counter",
        (),
        "Registrations evicted from the cache because it was full or the device could register no more.",
        lambda now: [((), now.registrations.evictions)],
    ),
    Metric(
        "verbena_registration_cache_bytes",
        "gauge",
        (),
        "Memory in the registration cache; at most `max_mr_size`.",
        lambda now: [((), now.registrations.bytes)],
    ),
    Metric(
        "verbena_pool_slots",
        "gauge",
        ("pool", "wire"),
        "Registered message buffers.",
        lambda now: [((pool.kind, pool.wire), pool.slots) for pool in now.pools],
    ),
    Metric(
        "verbena_pool_slots_used",
        "gauge",
        ("pool", "wire"),
        "Registered message buffers in use: unacknowledged sends, posted receives.",
        lambda now: [((pool.kind, pool.wire), pool.used) for pool in now.pools],
    ),
    Metric(
        "verbena_wire_available",
        "gauge",
        ("wire",),
        "1 if the wire is open, 0 if it is configured but could not be opened.",
        lambda now: [
            *(((wire,), 1) for wire in now.open_wires),
            *(((wire,), 0) for wire in now.absent_wires if wire not in now.open_wires),
        ],
    ),
    Metric(
        "verbena_wire_events_total",
        "counter",
        ("event", "wire"),
        "Events counted by the quic wire: datagrams, bytes, handshakes, rejected connections and packets.",
        _wire_events,
    ),
    Metric(
        "verbena_wire_connections",
        "gauge",
        ("state", "wire"),
        "Connections of the quic wire, each with any number of links; half_open: handshake in progress.",
        _wire_connections,
    ),
    Metric(
        "verbena_node_info",
        "gauge",
        ("node",),
        "Always 1; the label is the name of the node.",
        lambda now: [((now.node,), 1)],
    ),
    Metric(
        "verbena_uptime_seconds",
        "gauge",
        (),
        "Time since the node was created.",
        lambda now: [((), round(now.uptime_s, 3))],
    ),
)

_PAGE_HEAD = """\
# Metrics

A node serves its metrics in the Prometheus format at `http://…/metrics` if `[metrics] listen` is set or the
program calls `node.serve_metrics(address)` ([guide](../guide/observe.md)). Those of a store follow those of
its node; a registry has [further ones](registry-metrics.md).

## Node

Counters cover all sessions since the node was created, including ended ones.

"""
_PAGE_FOOT = """
`wire` is shm, ibv, iwarp or quic. `type` is send, recv, read or write; `op` is call, read or write; `pool` is
send or receive; `event` is listed in [quic options](quic-options.md). The buckets of the histogram range from
1.024 µs to 34 s, two per doubling: the bounds are powers of two in nanoseconds and the midpoints between
them. A value equal to a bound is in the bucket above it.
"""


def page() -> str:
    """Returns the part of docs/reference/metrics.md about nodes."""
    return _PAGE_HEAD + "".join(table_rows(METRICS)) + _PAGE_FOOT
