"""Another node: its session, its counters, and whether it should be called."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from verbena import transport
from verbena.errors import VerbenaError
from verbena.registry.nodes import messages
from verbena.transport import Handler, Node, Session, SessionState

FIRST_RETRY_S = 0.25
LAST_RETRY_S = 15.0
CALL_TIMEOUT_S = 10.0


class PeerFailed(Exception):
    """The call failed or its response is invalid: try another peer."""


class Peer:
    """For an address, `keep_connected()` maintains the session; for an incoming session, the caller sets
    `id` and `session`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.id = ""
        self.session: Session | None = None
        self.tried = asyncio.Event()
        """Set after the first attempt to connect."""
        self.received_bytes = 0
        self.corrupt_blobs = 0
        self.stalls = 0
        self.failures = 0
        self.avoided_until = 0.0
        self.is_self = False
        self.problem = ""

    @property
    def name(self) -> str:
        return self.session.peer_name if self.session is not None else self.address

    @property
    def live(self) -> bool:
        session = self.session
        return session is not None and not session.closed and session.state is SessionState.CONNECTED

    @property
    def avoided(self) -> bool:
        return time.monotonic() < self.avoided_until

    @property
    def usable(self) -> bool:
        return self.live and bool(self.id) and not self.is_self and not self.avoided

    @property
    def is_reconnecting(self) -> bool:
        """Whether its link is broken and the session is looking for another."""
        session = self.session
        return session is not None and not session.closed and session.state is SessionState.DISCONNECTED

    async def wait_linked(self) -> None:
        """Waits until its session has a link again or has ended."""
        session = self.session
        if session is not None:
            async for state in session.states():
                if state is not SessionState.DISCONNECTED:
                    return

    def record_corruption(self, avoid_s: float) -> None:
        """Records that it sent wrong bytes: it is avoided for `avoid_s`, twice as long each further time."""
        self.corrupt_blobs += 1
        self.avoided_until = time.monotonic() + avoid_s * 2 ** min(self.corrupt_blobs - 1, 10)

    async def call(self, method: str, timeout_s: float = CALL_TIMEOUT_S, **fields: Any) -> dict[str, Any]:
        """Calls a method of the peer and returns its response. Raises PeerFailed."""
        session = self.session
        if session is None:
            raise PeerFailed(f"{self.address} is not connected")
        try:
            return messages.decode(await session.call(method, messages.encode(**fields), timeout_s=timeout_s))
        except (VerbenaError, messages.BadMessage) as error:
            self.failures += 1
            self.problem = f"{method}: {error}"
            raise PeerFailed(f"{self.address}: {error}") from error

    async def keep_connected(
        self,
        node: Node,
        handlers: Mapping[str, Handler],
        *,
        node_id: str,
        tls: ssl.SSLContext | None,
        changed: Callable[[Peer], None],
    ) -> None:
        """Connects, and reconnects with increasing delays, until cancelled or until the address turns out to
        be this node itself."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                self.session = await transport.connect(
                    self.address, node=node, handlers=handlers, tls=tls, config=node.settings
                )
                answer = await self.call(messages.HELLO, node_id=node_id)
                self.id = messages.take_text(answer, "id", 64)
                self.problem = ""
            except (VerbenaError, PeerFailed, messages.BadMessage, OSError) as error:
                self.problem = str(error)
                await self._drop()
                # Both ends of a session know its random id; a node that already has it has dialled itself.
                self.is_self = isinstance(error, VerbenaError) and error.operation == "add a session"
                self.tried.set()
                if self.is_self:
                    return
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
                continue
            retry_s = FIRST_RETRY_S
            if self.id == node_id:
                self.is_self = True
                await self._drop()
                self.tried.set()
                return
            self.tried.set()
            await self.watch(changed)
            await self._drop()

    async def watch(self, changed: Callable[[Peer], None]) -> None:
        """Calls `changed` at every state change of its session; returns when the session has ended."""
        assert self.session is not None
        async for _ in self.session.states():
            changed(self)
        changed(self)

    async def _drop(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            with contextlib.suppress(VerbenaError):
                await session.close()
