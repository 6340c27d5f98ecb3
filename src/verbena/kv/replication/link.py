"""A replica's link to its primary: connects, negotiates, receives, and reconnects when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena.errors import VerbenaError, setup_error
from verbena.kv.replication.log_applier import make_applier
from verbena.kv.replication.primary_address import session_address
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.config import Config
    from verbena.kv.replication.settings import Settings
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")

METHOD = "kv.replicate"
VERSION = 5
RETRY_S = 0.25
POLL_S = 0.05


# Makes a session known to the primary; returns the stream whose user asks to follow, None: no user does.
Authenticate = Callable[[transport.Session], Awaitable[int | None]]


class ReplicaLink:
    """Follows one primary until cancelled. A later link can continue from `position`."""

    def __init__(
        self,
        server: Server,
        config: Config,
        settings: Settings,
        host: str,
        port: int,
        position: ReplicaPosition,
        *,
        authenticate: Authenticate,
        sessions: str = "",
    ) -> None:
        self.host, self.port = host, port
        self.sessions = sessions  # the address for sessions; empty: read from INFO of the primary
        self.state = "connect"  # connect, sync or connected, as in ROLE
        self.last_error = ""
        self.position = position
        self.down_since = time.monotonic()
        self.wire, self.linked = "", False
        self.full_syncs = self.partial_syncs = 0
        self._server, self._config, self._settings = server, config, settings
        self._authenticate, self.sessions = authenticate, sessions
        self._receiver: _native.kv.ReplicationReceiver | None = None
        self._stopped = False
        self._replid = ""  # of the primary's history
        self._term = (0, 0)
        self._resume_position = position  # the position to continue from if this link fails

    def counters(self) -> dict[str, Any]:
        receiver = self._receiver
        return receiver.counters() if receiver is not None else {}

    def stop(self) -> None:
        """Nothing from the primary is applied after this returns. On the engine's thread; the caller must
        also cancel the task that runs the link."""
        self._stopped = True
        if self._receiver is not None:
            self._detach(self._receiver)

    @property
    def offset(self) -> int:
        counters = self.counters()
        return counters["offset"] if counters.get("complete") else self.position.offset

    async def run(self, node: transport.Node) -> None:
        while True:
            try:
                await self._follow(node)
            except (VerbenaError, OSError, ValueError, MemoryError) as error:
                last_error = (str(error) or "not enough memory").splitlines()[0]
                if last_error != self.last_error:
                    log.warning("the link to primary %s:%d failed: %s", self.host, self.port, last_error)
                self.last_error = last_error
            self._mark_down()
            self.state = "connect"
            await asyncio.sleep(RETRY_S)

    async def _follow(self, node: transport.Node) -> None:
        settings = self._settings
        address = self.sessions or await session_address(
            self.host, self.port, user=settings.primary_user, password=settings.primary_password
        )
        session = await transport.connect(address, node=node, config=self._config)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(session.close)
            stream = await self._authenticate(session)
            ring = await asyncio.to_thread(
                node.allocate, settings.ring_size, access=Access.REMOTE_WRITE, session=session
            )
            stack.push_async_callback(asyncio.to_thread, ring.close)
            applied = make_applier(self._server, lsn=self.position.lsn)
            stack.callback(applied.close)
            receiver = _native.kv.ReplicationReceiver(self._server.engine, session._native, ring, applied)
            self._receiver, self._replid, self._resume_position = receiver, "", self.position
            stack.callback(self._detach, receiver)
            if self._stopped:
                return
            sync_request = {
                "version": VERSION,
                "stream": stream,
                "port": self._server.parameters.get("port"),
                "replid": self.position.replid,
                "lsn": self.position.lsn,
                "offset": self.position.offset,
                "ring_key": ring.remote.key,
                "ring_bytes": len(ring),
                "ring_tag": receiver.ring_tag,
                "databases": len(self._server.databases),
            }
            answer = json.loads(await session.call(METHOD, json.dumps(sync_request).encode(), timeout_s=30))
            if answer.get("error"):
                raise setup_error("denied", operation="follow a primary", detail=answer["error"])
            full, self._replid = bool(answer["full"]), answer["replid"]
            self._term = (int(answer["term"][0]), int(answer["term"][1]))
            self.full_syncs += full
            self.partial_syncs += not full
            self._resume_position = ReplicaPosition()  # an incomplete copy has no position
            self.state, self.wire, self.linked = "sync", session.wire or "", True
            receiver.begin(
                full=full, offset=answer["offset"], position_key=answer["position_key"]
            )  # ValueError: it was stopped
            await self._watch(session, receiver)

    async def _watch(self, session: transport.Session, receiver: _native.kv.ReplicationReceiver) -> None:
        while True:
            counters = receiver.counters()
            if counters["error"]:
                raise setup_error("log_failed", operation="follow a primary", detail=counters["error"])
            if counters["complete"] and self.state != "connected":
                self.state, self.last_error = "connected", ""
                self.position = ReplicaPosition(self._replid, counters["lsn"], counters["offset"], self._term)
            if session.state is transport.SessionState.CONNECTED:
                self.linked = True
            else:
                self._mark_down()
            if session.closed or session.state is transport.SessionState.FAILED:
                raise setup_error("unreachable", operation="follow a primary", detail="the session has ended")
            self.wire = session.wire or ""
            await asyncio.sleep(POLL_S)

    def _mark_down(self) -> None:
        """Marks the link as down. An incomplete copy never counted as up."""
        if self.linked and self.state == "connected":
            self.down_since = time.monotonic()
        self.linked = False

    def _detach(self, receiver: _native.kv.ReplicationReceiver) -> None:
        if self._receiver is None:
            return
        receiver.close()  # first: a record applied after this would be requested again
        counters = receiver.counters()
        exact = counters["complete"] and not counters["error"] and self._replid
        position = ReplicaPosition(self._replid, counters["lsn"], counters["offset"], self._term)
        self.position = position if exact else self._resume_position
        self._receiver = None


class ReplicaPosition:
    """A replica's position: history, LSN and offset, and the history's term (Replication.term)."""

    def __init__(
        self, replid: str = "", lsn: int = 0, offset: int = 0, term: tuple[int, int] = (0, 0)
    ) -> None:
        self.replid, self.lsn, self.offset, self.term = replid, lsn, offset, term
