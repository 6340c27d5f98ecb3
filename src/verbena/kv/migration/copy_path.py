"""The path of a base copy to its target: RDMA while that works, else the fallback. Counts acknowledged
pieces."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from verbena.transport import Node, Session, SessionState

# Wires that write into a peer's memory without running the peer's code and without an intermediate copy.
RDMA_WIRES = frozenset({"shm", "ibv"})


class CopyPathState(enum.Enum):
    UNAVAILABLE = "unavailable"  # there is no RDMA wire here, or the configuration excludes it
    DISCONNECTED = "disconnected"  # RDMA may work; no session has been opened yet
    CONNECTED = "connected"
    FAILED = "failed"  # the peer has no RDMA wire, or the link broke: the rest goes over the fallback


@dataclass
class CopyCounters:
    bytes_transferred: int = 0
    sends_completed: int = 0


class CopyPath:
    """The state of one move's RDMA path, with counters for RDMA and for the fallback. `wanted`: the
    configuration allows RDMA."""

    def __init__(self, node: Node, *, wanted: bool) -> None:
        has_wire = bool(RDMA_WIRES & set(node.wires.names))
        self.state = CopyPathState.DISCONNECTED if wanted and has_wire else CopyPathState.UNAVAILABLE
        self.rdma, self.fallback = CopyCounters(), CopyCounters()
        self._session: Session | None = None

    @property
    def is_available(self) -> bool:
        return self.state in (CopyPathState.DISCONNECTED, CopyPathState.CONNECTED)

    @property
    def bytes_transferred(self) -> int:
        return self.rdma.bytes_transferred + self.fallback.bytes_transferred

    def connected(self, session: Session) -> None:
        """Records a new session; it is usable if it has an RDMA wire."""
        self._session = session
        is_rdma = session.wire in RDMA_WIRES
        self.state = CopyPathState.CONNECTED if is_rdma else CopyPathState.FAILED

    def update(self) -> CopyPathState:
        """Reads the session's state: after a fallback to another wire it is not RDMA."""
        session = self._session
        if self.state is CopyPathState.CONNECTED and session is not None:
            lost = session.closed or session.state is SessionState.FAILED
            if lost or (session.wire is not None and session.wire not in RDMA_WIRES):
                self.state = CopyPathState.FAILED
        return self.state

    def failed(self) -> None:
        self.state = CopyPathState.FAILED

    def acknowledged(self, nbytes: int, sends: int = 1, *, by_rdma: bool) -> None:
        counters = self.rdma if by_rdma else self.fallback
        counters.bytes_transferred += nbytes
        counters.sends_completed += sends
