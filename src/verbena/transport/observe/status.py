"""The status of a node as a JSON document. `verbena top` shows it, and any peer may request it."""

from __future__ import annotations

from typing import Any

from verbena.transport.observe.metrics.counters import (
    BOUNDS_NS,
    OPERATIONS,
    Counters,
    Histogram,
    SessionCounters,
    Snapshot,
)

MAX_SESSIONS = 200

_QUANTILES = (("p50_ns", 0.50), ("p99_ns", 0.99))


def status(now: Snapshot, *, max_sessions: int = MAX_SESSIONS, except_session: int = 0) -> dict[str, Any]:
    """Returns the status as plain values, with the `max_sessions` busiest sessions. The session with the id
    `except_session`, which made the request, is left out."""
    others = sorted(
        (session for session in now.sessions if session.id != except_session), key=_work, reverse=True
    )
    return {
        "node": now.node,
        "uptime_s": round(now.uptime_s, 3),
        "wires": {
            **{wire: {"open": True} for wire in now.open_wires},
            **{wire: {"open": False, "reason": why} for wire, why in now.absent_wires.items()},
        },
        "totals": {wire: _counters(counters) for wire, counters in now.wires.items()},
        "sessions_open": len(others),
        "sessions_opened": now.opened,
        "sessions_ended": dict(now.ended),
        "sessions": [_session(session) for session in others[:max_sessions]],
        "refused": dict(now.refused),
        "regions": now.regions,
        "pools": [
            {"wire": pool.wire, "pool": pool.kind, "slots": pool.slots, "used": pool.used}
            for pool in now.pools
        ],
    }


def _work(session: SessionCounters) -> int:
    return sum(counters["send_ops"] + counters["read_ops"] for counters in session.wires.values())


def _session(session: SessionCounters) -> dict[str, Any]:
    return {
        "id": f"{session.id:x}",
        "peer": session.peer,
        "peer_name": session.peer_name,
        "principal": session.principal,
        "state": session.state,
        "wire": session.wire,
        "reason": session.reason,
        "age_s": round(session.age_s, 3),
        "wires": {wire: _counters(counters) for wire, counters in session.wires.items()},
    }


def _counters(counters: Counters) -> dict[str, Any]:
    return {
        **counters.counts,
        "latency": {
            operation: _times(counters.times[operation])
            for operation in OPERATIONS
            if counters.times[operation].count
        },
    }


def _times(times: Histogram) -> dict[str, Any]:
    return {
        "count": times.count,
        "sum_ns": times.sum_ns,
        **{name: times.quantile_ns(q) for name, q in _QUANTILES},
        # From the buckets of two responses a client can compute the latencies in between; from quantiles it
        # cannot.
        "buckets": [[BOUNDS_NS[bucket], count] for bucket, count in enumerate(times.buckets) if count],
    }
