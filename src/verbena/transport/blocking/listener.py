"""The blocking form of a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena._closing import Closing
from verbena.transport import lifetime
from verbena.transport.blocking.session import Session
from verbena.transport.memory.region import Region
from verbena.transport.named.publication import Publication
from verbena.transport.named.rules import Rule
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.listening import listener as asyncio_form
    from verbena.transport.node import Node


class Listener(Closing):
    """Accepts sessions until it is closed. Created by verbena.sync.listen(). A context manager."""

    def __init__(self, listener: asyncio_form.Listener) -> None:
        self._listener = listener

    @property
    def node(self) -> Node:
        return self._listener.node

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def wires(self) -> tuple[str, ...]:
        """The wires on which it listens, best first."""
        return self._listener.wires

    @property
    def refused(self) -> dict[str, int]:
        """Rejected handshakes and links, by error code."""
        return self._listener.refused

    @property
    def sessions(self) -> list[Session]:
        return [session.sync for session in self._listener.sessions]

    def stop_accepting(self) -> None:
        """Stops accepting new sessions. Open sessions continue and may change wires; close() ends them."""
        self._listener.stop_accepting()

    def admit_unproved(self, admits: bool) -> None:
        """Sets whether peers that have proved nothing are accepted. False also closes their open sessions."""
        self._listener.admit_unproved(admits)

    def publish(
        self,
        name: str,
        array: Buffer | Region,
        *,
        access: Access = Access.REMOTE_READ,
        allow: Rule = None,
    ) -> Publication:
        """As publish() of the asyncio form. A function in `allow` runs in a thread."""
        return self._listener.publish(name, array, access=access, allow=allow)

    def unpublish(self, name: str) -> None:
        """Ends a name and the access of all peers to it; returns when no access is in progress."""
        self._listener.unpublish(name)

    def serve_forever(self) -> None:
        """Blocks until the listener is closed, for programs that only serve."""
        self._check_process("serve_forever")
        self._listener._ended.wait()

    def close(self) -> None:
        """Stops accepting and closes the node's sessions, and the node if listen() created it. Idempotent."""
        if not self._inherited:
            lifetime.close_blocking(self._listener._close)

    def __repr__(self) -> str:
        return repr(self._listener)
