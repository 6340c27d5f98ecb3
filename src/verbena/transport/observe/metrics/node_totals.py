"""Keeps the totals of a node, including those of ended sessions, so that they never decrease."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from verbena.errors import ClosedError
from verbena.transport.observe.metrics.counters import (
    Counters,
    Pool,
    Registrations,
    SessionCounters,
    Snapshot,
    total,
)

if TYPE_CHECKING:
    from verbena.transport.node import Node
    from verbena.transport.session import Session


class NodeTotals:
    """The totals of one node. Its lock makes the end of a session atomic: a snapshot includes its counters
    exactly once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._past: dict[str, Counters] = {}
        self._opened = 0
        self._ended: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def open(self, session: Session) -> None:
        with self._lock:
            session.node._sessions[session.id] = session
            self._opened += 1

    def end(self, session: Session, reason: str) -> bool:
        """Adds the counters of a session to the totals. False if it had ended before."""
        with self._lock:
            if session.node._sessions.pop(session.id, None) is None:
                return False
            self._past = total((self._past, _counters(session)))
            self._ended[reason] += 1
            return True

    def refuse(self, reason: str) -> None:
        with self._lock:
            self._refused[reason] += 1

    def snapshot(self, node: Node) -> Snapshot:
        now = time.monotonic()
        unused = {wire: Counters() for wire in node.wires.names}
        with self._lock:
            sessions = tuple(_session(session, now) for session in node._sessions.values())
            return Snapshot(
                node=node.name,
                uptime_s=now - self._started,
                wires=total((unused, self._past, *(session.wires for session in sessions))),
                sessions=sessions,
                open_wires=node.wires.names,
                absent_wires=dict(node.wires.reasons),
                opened=self._opened,
                ended=dict(self._ended),
                refused=dict(self._refused),
                regions=_regions(node),
                pools=_pools(node),
                registrations=Registrations(*node._native.registrations()),
                wire_counts=_wire_counts(node),
            )


def snapshot(node: Node) -> Snapshot:
    """Returns the current counters of the node, and resets nothing. From any thread."""
    return node._totals.snapshot(node)


def info_rdma(node: Node) -> dict[str, int]:
    """Returns the fields of `INFO rdma`: established links and totals of all wires since the node was
    created."""
    now = snapshot(node)
    return {
        "rdma_connections": sum(now.connections.values()),
        **{f"rdma_{kind}_ops": now.total(f"{kind}_ops") for kind in ("send", "recv", "read", "write")},
        **{f"rdma_{kind}_bytes": now.total(f"{kind}_bytes") for kind in ("send", "recv")},
        "rdma_completion_errors": now.total("completion_errors"),
        "rdma_retry_exceeded": now.total("retry_exceeded"),
        "rdma_removed_devices": len(node.wires.removed),
    }


def _counters(session: Session) -> dict[str, Counters]:
    return {wire: Counters.of(native) for wire, native in session.metrics().items()}


def _session(session: Session, now: float) -> SessionCounters:
    return SessionCounters(
        id=session.id,
        peer=session.peer,
        peer_name=session.peer_name,
        principal=str(session.principal),
        state=session.state.value,
        wire=session.wire,
        reason=session.reason,
        age_s=now - session._opened_at,
        wires=_counters(session),
    )


def _wire_counts(node: Node) -> dict[str, dict[str, int]]:
    """Returns the counters that wires keep outside of sessions, by wire; empty if the node is closed."""
    try:
        counts = {wire.name: wire.context.counts for wire in node.wires}
    except ClosedError:
        return {}
    return {wire: counted for wire, counted in counts.items() if counted}


def _regions(node: Node) -> int:
    try:
        return node._native.regions
    except ClosedError:
        return 0


def _pools(node: Node) -> tuple[Pool, ...]:
    pools: list[Pool] = []
    for wire in node.wires:
        send_slots, send_used, receive_slots, receive_used = wire.port.pools()
        pools += (
            Pool(wire.name, "send", send_slots, send_used),
            Pool(wire.name, "receive", receive_slots, receive_used),
        )
    return tuple(pools)
