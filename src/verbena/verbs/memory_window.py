"""Memory windows: regions lent to the peer of one queue pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena.verbs.resource import Resource

if TYPE_CHECKING:
    from verbena._native import RemoteMemory
    from verbena.verbs.memory_region import MemoryRegion
    from verbena.verbs.queue_pair import QueuePair


class MemoryWindow(Resource):
    """Created by pd.bind_window(). A context manager; it ends at the latest when its region or its queue pair
    is closed, or the queue pair reset."""

    __slots__ = ("_native", "qp", "region")

    def __init__(self, native: _native.MemoryWindow, *, region: MemoryRegion, qp: QueuePair) -> None:
        super().__init__()
        self.region = region
        self.qp = qp
        self._native = native

    @property
    def rkey(self) -> int:
        """The key for the peer. Through any other queue pair it is refused."""
        return self._native.rkey

    @property
    def remote(self) -> RemoteMemory:
        """What the peer needs to reach all of it."""
        return self._native.remote

    def invalidate(self) -> None:
        """Ends the peer's access: when this returns, the key is refused and no access is in progress.
        close() does the same."""
        self.close()

    def _close_native(self) -> None:
        self._native.invalidate()

    def __repr__(self) -> str:
        return f"<MemoryWindow of {self.region!r} for {self.qp!r}{', closed' if self.closed else ''}>"
