"""The store over sessions: memory that peers can read one-sided, and the frontend that serves their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.server.server import Server
    from verbena.transport import Node, Region


class SessionFrontend:
    """Made before the server, whose memory it allocates; opened afterwards:

    frontend = SessionFrontend(node)
    server = Server(memory=frontend.memory)
    frontend.open(server)
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._regions: list[Region] = []
        self._native: _native.kv.SessionFrontend | None = None

    def memory(self, nbytes: int) -> Buffer:
        """Returns a chunk for the engine, readable by peers. They get its key from the call kv.layout
        only."""
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
        """Ends serving, and releases the engine, so that it can be freed."""
        self._native = None

    @property
    def requests(self) -> int:
        """The number of calls received; one-sided reads do not count."""
        return self._native.requests if self._native is not None else 0
