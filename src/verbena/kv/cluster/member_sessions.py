"""Sessions with the other members of the cluster, opened on first use, and requests over them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from verbena import transport
from verbena._native.kv import NOTICE_METHOD
from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import Member
from verbena.shards.envelope import Envelope, Flag, Kind, parse
from verbena.transport import SessionState

METHOD = "shards"
NO_MIGRATION = bytes(16)


class MemberSessions:
    """`connect(address, wire)` opens a session; wire None: the best one available. `fallback`: the wire of
    sessions that are not "fast"."""

    def __init__(
        self,
        member: str,
        *,
        node: transport.Node,
        connect: Callable[[str, str | None], Awaitable[transport.Session]],
        fallback: str,
    ) -> None:
        self.member = member
        self.node = node
        self._connect = connect
        self._fallback = fallback
        self._sessions: dict[tuple[str, bool], transport.Session] = {}
        self._locks: dict[tuple[str, bool], asyncio.Lock] = {}
        self._sequence = 0
        self.tap: Callable[[str, bytes], None] | None = None  # called with the wire and bytes of each message

    async def session(self, to: Member, *, fast: bool) -> transport.Session:
        """Returns the open session with that member, on the best wire (`fast`) or on the fallback's; a new
        one if needed."""
        name = (to.id, fast)
        async with self._locks.setdefault(name, asyncio.Lock()):
            found = self._sessions.get(name)
            if found is not None and (found.closed or found.state is SessionState.FAILED):
                found = None
            if found is None:
                found = await self._connect(to.sessions, None if fast else self._fallback)
                self._sessions[name] = found
            return found

    def envelope(self, kind: Kind, to: Member, payload: bytes = b"", **fields: object) -> Envelope:
        """Returns a message from this node to that member."""
        self._sequence += 1
        base = Envelope(
            kind=kind,
            source=bytes.fromhex(self.member),
            target=bytes.fromhex(to.id),
            first_shard=0,
            last_shard=0,
            migration=NO_MIGRATION,
            payload=payload,
            sequence=self._sequence,
            boot_epoch=self.node.boot_epoch,
        )
        return replace(base, **fields)  # type: ignore[arg-type]

    async def request(
        self, to: Member, message: Envelope, *, fast: bool = False, timeout_s: float | None = None
    ) -> Envelope:
        """Returns the member's answer. RemoteError (move_failed): it refused, with its reason."""
        session = await self.session(to, fast=fast)
        return await self.send(session, bytes(message), timeout_s=timeout_s)

    async def send(
        self, session: transport.Session, data: bytes, *, timeout_s: float | None = None
    ) -> Envelope:
        """Returns the answer to an encoded message over a given session. Errors as for request()."""
        if self.tap is not None:
            self.tap(session.wire or "", data)
        answered = await session.call(_method(data), data, timeout_s=timeout_s)
        return self.read_answer(session, Kind(data[5]), answered)

    @staticmethod
    def read_answer(session: transport.Session, kind: Kind, answered: bytes) -> Envelope:
        """Parses the answer to a message of that kind. ProtocolError: it is none. RemoteError: a refusal."""
        answer = parse(answered)
        if answer.kind is not kind or not answer.flags & Flag.ANSWER:
            detail = f"{answer.kind.name} is no answer to {kind.name}"
            raise setup_error(
                "bad_envelope", operation="send a request to a member", peer=session.peer, detail=detail
            )
        if answer.flags & Flag.REFUSED:
            detail = answer.payload.decode("utf-8", "replace")
            raise setup_error("move_failed", operation=kind.name.lower(), peer=session.peer, detail=detail)
        return answer

    def links(self) -> list[tuple[str, int]]:
        """Returns (member, Unix time in ms of its opening) for each open session."""
        began = time.time() - time.monotonic()
        return [
            (id, int((began + session._opened_at) * 1000))
            for (id, _), session in self._sessions.items()
            if not session.closed
        ]

    def wire_to(self, id: str, *, fast: bool) -> str:
        """Returns the wire of that session now; empty: there is none."""
        session = self._sessions.get((id, fast))
        return (session.wire or "") if session is not None and not session.closed else ""

    async def drop(self, to: Member) -> None:
        """Closes the sessions with that member."""
        for fast in (True, False):
            session = self._sessions.pop((to.id, fast), None)
            if session is not None:
                with contextlib.suppress(VerbenaError):
                    await session.close()

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            with contextlib.suppress(VerbenaError):
                await session.close()


def _method(message: bytes) -> str:
    return NOTICE_METHOD if message[5] == Kind.NOTICE else METHOD


def answer(to: Envelope, payload: bytes = b"", *, refused: bool = False) -> bytes:
    """Returns the answer to a message. `refused`: the payload is the reason."""
    flags = Flag.ANSWER | (Flag.REFUSED if refused else Flag.NONE)
    return bytes(
        replace(to, source=to.target, target=to.source, flags=flags, payload=payload, offset=0, total=0)
    )
