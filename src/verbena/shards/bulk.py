"""Phase 1's way to a target: RDMA while it works. What it counts, the peer has acknowledged."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from verbena.transport import Node, Session, SessionState

# Wires that reach a peer's memory without its program, and without a copy in between.
RDMA_WIRES = frozenset({"shm", "ibv"})


class BulkState(enum.Enum):
    UNAVAILABLE = "unavailable"  # no wire for it here, or it is not wanted
    DISCONNECTED = "disconnected"  # it may work: nobody has dialled
    CONNECTED = "connected"
    FAILED = "failed"  # the peer has none, or it broke: the fallback carries the rest


@dataclass
class BulkCounters:
    bytes_transferred: int = 0
    sends_completed: int = 0


class BulkTransport:
    """The state of one move's RDMA path, by what its session does. Counters are by RDMA; the fallback has its
    own. `wanted`: the configuration allows it."""

    def __init__(self, node: Node, *, wanted: bool) -> None:
        there = bool(RDMA_WIRES & set(node.wires.names))
        self.state = BulkState.DISCONNECTED if wanted and there else BulkState.UNAVAILABLE
        self.rdma, self.fallback = BulkCounters(), BulkCounters()
        self.session: Session | None = None

    @property
    def is_available(self) -> bool:
        return self.state in (BulkState.DISCONNECTED, BulkState.CONNECTED)

    @property
    def is_connected(self) -> bool:
        """By RDMA, as far as its session knows. From any thread."""
        session = self.session
        return (
            self.state is BulkState.CONNECTED
            and session is not None
            and not session.closed
            and session.state is SessionState.CONNECTED
            and session.wire in RDMA_WIRES
        )

    def connected(self, session: Session) -> None:
        """A session was dialled: it is good for this if its wire is."""
        self.session = session
        self.state = BulkState.CONNECTED if session.wire in RDMA_WIRES else BulkState.FAILED

    def look(self) -> BulkState:
        """A session that has stepped down carries on, but not by RDMA."""
        session = self.session
        if self.state is BulkState.CONNECTED and session is not None:
            lost = session.closed or session.state is SessionState.FAILED
            if lost or (session.wire is not None and session.wire not in RDMA_WIRES):
                self.state = BulkState.FAILED
        return self.state

    def failed(self) -> None:
        self.state = BulkState.FAILED

    def acknowledged(self, nbytes: int, sends: int = 1, *, by_rdma: bool) -> None:
        counters = self.rdma if by_rdma else self.fallback
        counters.bytes_transferred += nbytes
        counters.sends_completed += sends
