"""A replica's link to its primary: found, dialled, agreed upon, and begun anew when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena.errors import VerbenaError, setup_error
from verbena.kv.replication.applying import applier
from verbena.kv.replication.finding import session_address
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.config import Config
    from verbena.kv.replication.settings import Settings
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")

METHOD = "kv.replicate"
VERSION = 4
RETRY_S = 0.25
LOOK_S = 0.05


class ReplicaLink:
    """Follows one primary until cancelled. `place` is what a later link may go on from."""

    def __init__(
        self, server: Server, config: Config, settings: Settings, host: str, port: int, place: Place
    ) -> None:
        self.host, self.port = host, port
        self.state = "connect"  # connect, sync or connected, as ROLE says
        self.why = ""
        self.place = place
        self.down_since = time.monotonic()
        self.wire, self.linked = "", False
        self.full_syncs = self.partial_syncs = 0
        self._server, self._config, self._settings = server, config, settings
        self._receiver: _native.kv.ReplicationReceiver | None = None
        self._stopped = False
        self._replid = ""  # of the history that is being followed
        self._term = (0, 0)
        self._before = place  # what to ask for if this link does not get anywhere

    def figures(self) -> dict[str, Any]:
        receiver = self._receiver
        return receiver.counters() if receiver is not None else {}

    def stop(self) -> None:
        """Nothing of the primary's is applied any more when this returns. On the engine's thread; the task
        that runs the link is to be cancelled, too."""
        self._stopped = True
        if self._receiver is not None:
            self._leave(self._receiver)

    @property
    def offset(self) -> int:
        figures = self.figures()
        return figures["offset"] if figures.get("complete") else self.place.offset

    async def run(self, node: transport.Node) -> None:
        while True:
            try:
                await self._follow(node)
            except (VerbenaError, OSError, ValueError) as error:
                why = str(error).splitlines()[0]
                if why != self.why:
                    log.warning("the primary %s:%d cannot be followed: %s", self.host, self.port, why)
                self.why = why
            self._unlink()
            self.state = "connect"
            await asyncio.sleep(RETRY_S)

    async def _follow(self, node: transport.Node) -> None:
        settings = self._settings
        address = await session_address(
            self.host, self.port, user=settings.primary_user, password=settings.primary_password
        )
        session = await transport.connect(address, node=node, config=self._config)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(session.close)
            ring = await asyncio.to_thread(
                node.allocate, settings.ring_size, access=Access.REMOTE_WRITE, session=session
            )
            stack.push_async_callback(asyncio.to_thread, ring.revoke)
            applied = applier(self._server, lsn=self.place.lsn)
            stack.callback(applied.close)
            receiver = _native.kv.ReplicationReceiver(
                self._server.engine, session._native, ring.memory, applied
            )
            self._receiver, self._replid, self._before = receiver, "", self.place
            stack.callback(self._leave, receiver)
            if self._stopped:
                return
            wish = {
                "version": VERSION,
                "port": self._server.parameters.get("port"),
                "replid": self.place.replid,
                "lsn": self.place.lsn,
                "offset": self.place.offset,
                "ring_key": ring.remote.key,
                "ring_bytes": len(ring),
                "mark": receiver.mark,
                "databases": len(self._server.databases),
            }
            answer = json.loads(await session.call(METHOD, json.dumps(wish).encode(), timeout_s=30))
            if answer.get("error"):
                raise setup_error("denied", operation="follow a primary", detail=answer["error"])
            full, self._replid = bool(answer["full"]), answer["replid"]
            self._term = (int(answer["term"][0]), int(answer["term"][1]))
            self.full_syncs += full
            self.partial_syncs += not full
            self._before = Place()  # it holds something that has no place until it is complete
            self.state, self.wire, self.linked = "sync", session.wire or "", True
            receiver.begin(
                full=full, offset=answer["offset"], place_key=answer["place_key"]
            )  # ValueError: it was stopped
            await self._watch(session, receiver)

    async def _watch(self, session: transport.Session, receiver: _native.kv.ReplicationReceiver) -> None:
        while True:
            figures = receiver.counters()
            if figures["error"]:
                raise setup_error("log_failed", operation="follow a primary", detail=figures["error"])
            if figures["complete"] and self.state != "connected":
                self.state, self.why = "connected", ""
                self.place = Place(self._replid, figures["lsn"], figures["offset"], self._term)
            if session.state is transport.SessionState.CONNECTED:
                self.linked = True
            else:
                self._unlink()
            if session.closed or session.state is transport.SessionState.FAILED:
                raise setup_error("unreachable", operation="follow a primary", detail="the session has ended")
            self.wire = session.wire or ""
            await asyncio.sleep(LOOK_S)

    def _unlink(self) -> None:
        """What had been up is down from now on: a copy that was not whole had not been."""
        if self.linked and self.state == "connected":
            self.down_since = time.monotonic()
        self.linked = False

    def _leave(self, receiver: _native.kv.ReplicationReceiver) -> None:
        if self._receiver is None:
            return
        receiver.close()  # first: what is applied afterwards would be asked for again
        figures = receiver.counters()
        exact = figures["complete"] and not figures["error"] and self._replid
        place = Place(self._replid, figures["lsn"], figures["offset"], self._term)
        self.place = place if exact else self._before
        self._receiver = None


class Place:
    """How far a replica is in which history, and of which term that is (Replication.term)."""

    def __init__(
        self, replid: str = "", lsn: int = 0, offset: int = 0, term: tuple[int, int] = (0, 0)
    ) -> None:
        self.replid, self.lsn, self.offset, self.term = replid, lsn, offset, term
