"""Counters and latencies as plain values: of a session, a peer or a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verbena import _native

COUNTS = tuple(_native.transport.counter_names())
OPERATIONS = tuple(_native.transport.histogram_names())  # the timed ones
BUCKETS = _native.transport.HISTOGRAM_BUCKETS
BOUNDS_NS = tuple(map(_native.transport.histogram_bound_ns, range(BUCKETS)))  # exclusive upper bounds


@dataclass(frozen=True)
class Histogram:
    """A histogram of times: the count of each bucket, and the sum."""

    sum_ns: int = 0
    buckets: tuple[int, ...] = (0,) * BUCKETS

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantile_ns(self, q: float) -> float | None:
        """Returns the `q`-quantile, accurate to 25 % (the middle of its bucket); None if there are no
        times."""
        wanted, seen = q * self.count, 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                lower = BOUNDS_NS[bucket - 1] if bucket else 0
                return (lower + BOUNDS_NS[bucket]) / 2
        return None

    def below(self, bucket: int) -> int:
        """Returns the number of times below the upper bound of the bucket."""
        return sum(self.buckets[: bucket + 1])

    def __add__(self, other: Histogram) -> Histogram:
        buckets = tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True))
        return Histogram(self.sum_ns + other.sum_ns, buckets)


@dataclass(frozen=True)
class Counters:
    """Counters and latencies of one wire: of a session, a peer or the node."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    times: Mapping[str, Histogram] = field(
        default_factory=lambda: {operation: Histogram() for operation in OPERATIONS}
    )

    @classmethod
    def of(cls, native: Mapping[str, Any]) -> Counters:
        """Converts the value of one wire in session.metrics()."""
        times = {operation: native[f"{operation}_ns"] for operation in OPERATIONS}
        return cls(
            {name: native[name] for name in COUNTS},
            {operation: Histogram(sum_ns, tuple(buckets)) for operation, (sum_ns, buckets) in times.items()},
        )

    def __getitem__(self, count: str) -> int:
        return self.counts[count]

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            {name: self[name] + other[name] for name in COUNTS},
            {operation: self.times[operation] + other.times[operation] for operation in OPERATIONS},
        )


ByWire = Mapping[str, Counters]


def total(several: Iterable[ByWire]) -> dict[str, Counters]:
    """Returns the sums by wire."""
    sums: dict[str, Counters] = {}
    for by_wire in several:
        for wire, counters in by_wire.items():
            sums[wire] = sums[wire] + counters if wire in sums else counters
    return sums


@dataclass(frozen=True)
class SessionCounters:
    """An open session and its counters by wire."""

    id: int
    peer: str
    peer_name: str
    principal: str
    state: str
    wire: str | None
    reason: str
    age_s: float
    wires: ByWire


@dataclass(frozen=True)
class Pool:
    """Registered buffers of one kind ("send" or "receive") on one wire."""

    wire: str
    kind: str
    slots: int
    used: int


@dataclass(frozen=True)
class Registrations:
    """The cache of registered buffers of the program: hits, misses and evictions so far, current content."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The state of a node at one moment. `wires` has the totals since it was created, with ended sessions."""

    node: str
    uptime_s: float
    wires: ByWire
    sessions: tuple[SessionCounters, ...]
    open_wires: tuple[str, ...]
    absent_wires: Mapping[str, str]  # wire → why it is not usable
    opened: int  # sessions since the node was created
    ended: Mapping[str, int]  # sessions, by reason
    refused: Mapping[str, int]  # rejected handshakes, links and cluster messages
    regions: int
    pools: tuple[Pool, ...]
    registrations: Registrations = field(default_factory=Registrations)
    wire_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # kept by the wires themselves

    @property
    def peers(self) -> dict[str, dict[str, Counters]]:
        """The totals of open sessions, by name of the peer, then by wire."""
        names = dict.fromkeys(session.peer_name for session in self.sessions)
        return {
            name: total(session.wires for session in self.sessions if session.peer_name == name)
            for name in names
        }

    @property
    def connections(self) -> dict[str, int]:
        """The number of established links, by wire."""
        counts = dict.fromkeys(self.open_wires, 0)
        for session in self.sessions:
            if session.state == "connected" and session.wire is not None:
                counts[session.wire] = counts.get(session.wire, 0) + 1
        return counts

    def total(self, count: str) -> int:
        """Returns the sum of a counter over all wires."""
        return sum(counters[count] for counters in self.wires.values())
