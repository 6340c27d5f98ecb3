"""The store by sessions: memory that peers can read one-sided, and the gate that lets their calls in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.server.server import Server
    from verbena.transport import Node, Region


class SessionFrontend:
    """Made before the server, whose memory it finds; opened afterwards:

    gateway = SessionFrontend(node)
    server = Server(memory=gateway.memory)
    gateway.open(server)
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._regions: list[Region] = []
        self._native: _native.kv.SessionFrontend | None = None

    def memory(self, nbytes: int) -> Buffer:
        """A chunk for the engine. Its key is told to nobody but by kv.layout."""
        region = self.node.allocate(nbytes, access=Access.REMOTE_READ)
        self._regions.append(region)
        if self._native is not None:
            self._native.add_region(region.remote.key)
        return region.memory

    def open(self, server: Server) -> None:
        self._native = _native.kv.SessionFrontend(server.engine, self.node._native)
        for region in self._regions:
            self._native.add_region(region.remote.key)
        server.services.sessions = self

    def close(self) -> None:
        """Nobody comes in any more, and the engine, whose memory this is, can be freed."""
        self._native = None

    @property
    def requests(self) -> int:
        """How many calls have come in: one-sided reads are none."""
        return self._native.requests if self._native is not None else 0
