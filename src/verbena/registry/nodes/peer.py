"""Another node, as this one knows it: its session, what it was good for, and whether to ask it at all."""

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
    """It did not answer, or with nonsense: ask another."""


class Peer:
    """Made for an address, which it keeps dialling, or for a session that came in (`adopt()`)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.id = ""
        self.session: Session | None = None
        self.tried = asyncio.Event()
        """Set after the first attempt to reach it."""
        self.received_bytes = 0
        self.lies = 0
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
    def between_links(self) -> bool:
        """Its wire broke, and the session is looking for another."""
        session = self.session
        return session is not None and not session.closed and session.state is SessionState.DISCONNECTED

    async def linked(self) -> None:
        """Returns when its session has a link again, or is over."""
        session = self.session
        if session is not None:
            async for state in session.states():
                if state is not SessionState.DISCONNECTED:
                    return

    def lied(self, avoid_s: float) -> None:
        """It sent wrong bytes: it is not asked for a while, twice as long each time."""
        self.lies += 1
        self.avoided_until = time.monotonic() + avoid_s * 2 ** min(self.lies - 1, 10)

    async def call(self, method: str, timeout_s: float = CALL_TIMEOUT_S, **fields: Any) -> dict[str, Any]:
        """Asks it. Raises PeerFailed."""
        session = self.session
        if session is None:
            raise PeerFailed(f"{self.address} is not connected")
        try:
            return messages.decode(await session.call(method, messages.encode(**fields), timeout_s=timeout_s))
        except (VerbenaError, messages.BadMessage) as error:
            self.failures += 1
            self.problem = f"{method}: {error}"
            raise PeerFailed(f"{self.address}: {error}") from error

    async def keep(
        self,
        node: Node,
        handlers: Mapping[str, Handler],
        *,
        me: str,
        tls: ssl.SSLContext | None,
        changed: Callable[[Peer], None],
    ) -> None:
        """Dials and keeps dialling, until cancelled or until it turns out to be this node itself."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                self.session = await transport.connect(
                    self.address, node=node, handlers=handlers, tls=tls, config=node.settings
                )
                answer = await self.call(messages.HELLO, me=me)
                self.id = messages.take_text(answer, "id", 64)
                self.problem = ""
            except (VerbenaError, PeerFailed, messages.BadMessage, OSError) as error:
                self.problem = str(error)
                await self._drop()
                # Both ends of a session have its random number: a node that has it already is this one.
                self.is_self = isinstance(error, VerbenaError) and error.operation == "add a session"
                self.tried.set()
                if self.is_self:
                    return
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
                continue
            retry_s = FIRST_RETRY_S
            if self.id == me:
                self.is_self = True
                await self._drop()
                self.tried.set()
                return
            self.tried.set()
            await self.watch(changed)
            await self._drop()

    async def watch(self, changed: Callable[[Peer], None]) -> None:
        """Tells of every change of its session, until that is over."""
        assert self.session is not None
        async for _ in self.session.states():
            changed(self)
        changed(self)

    async def _drop(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            with contextlib.suppress(VerbenaError):
                await session.close()
