"""What was counted, as plain values: figures of one session or of many, and a node's snapshot."""

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
    """Times: how many fell into each bucket, and their sum."""

    sum_ns: int = 0
    buckets: tuple[int, ...] = (0,) * BUCKETS

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantile_ns(self, q: float) -> float | None:
        """The time that a share of `q` did not exceed, within 25 %; None if there were none."""
        wanted, seen = q * self.count, 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                lower = BOUNDS_NS[bucket - 1] if bucket else 0
                return (lower + BOUNDS_NS[bucket]) / 2
        return None

    def below(self, bucket: int) -> int:
        """How many were shorter than the bucket's bound."""
        return sum(self.buckets[: bucket + 1])

    def __add__(self, other: Histogram) -> Histogram:
        buckets = tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True))
        return Histogram(self.sum_ns + other.sum_ns, buckets)


@dataclass(frozen=True)
class Figures:
    """What was done on one wire: by a session, with a peer, or by the whole node."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    times: Mapping[str, Histogram] = field(
        default_factory=lambda: {operation: Histogram() for operation in OPERATIONS}
    )

    @classmethod
    def of(cls, native: Mapping[str, Any]) -> Figures:
        """From one wire of session.metrics()."""
        times = {operation: native[f"{operation}_ns"] for operation in OPERATIONS}
        return cls(
            {name: native[name] for name in COUNTS},
            {operation: Histogram(sum_ns, tuple(buckets)) for operation, (sum_ns, buckets) in times.items()},
        )

    def __getitem__(self, count: str) -> int:
        return self.counts[count]

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            {name: self[name] + other[name] for name in COUNTS},
            {operation: self.times[operation] + other.times[operation] for operation in OPERATIONS},
        )


ByWire = Mapping[str, Figures]


def total(several: Iterable[ByWire]) -> dict[str, Figures]:
    """Added up, wire by wire."""
    sums: dict[str, Figures] = {}
    for by_wire in several:
        for wire, figures in by_wire.items():
            sums[wire] = sums[wire] + figures if wire in sums else figures
    return sums


@dataclass(frozen=True)
class SessionFigures:
    """An open session."""

    id: int
    peer: str
    peer_name: str
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
    """Programs' buffers that are kept registered: how often that helped, and what there is now."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A node at one moment. `wires` counts everything since it was made, ended sessions too."""

    node: str
    uptime_s: float
    wires: ByWire
    sessions: tuple[SessionFigures, ...]
    open_wires: tuple[str, ...]
    absent_wires: Mapping[str, str]  # why
    opened: int  # sessions, ever
    ended: Mapping[str, int]  # by reason
    refused: Mapping[str, int]  # hellos and links turned down, by reason
    regions: int
    pools: tuple[Pool, ...]
    registrations: Registrations = field(default_factory=Registrations)
    wire_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # a wire's own, by its name

    @property
    def peers(self) -> dict[str, dict[str, Figures]]:
        """By the peer's name, then by wire: of the sessions that are open."""
        names = dict.fromkeys(session.peer_name for session in self.sessions)
        return {
            name: total(session.wires for session in self.sessions if session.peer_name == name)
            for name in names
        }

    @property
    def connections(self) -> dict[str, int]:
        """Links that are up, by wire."""
        counts = dict.fromkeys(self.open_wires, 0)
        for session in self.sessions:
            if session.state == "connected" and session.wire is not None:
                counts[session.wire] = counts.get(session.wire, 0) + 1
        return counts

    def total(self, count: str) -> int:
        """Of all wires."""
        return sum(figures[count] for figures in self.wires.values())
