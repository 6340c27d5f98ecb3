"""Sessions with the other members of the cluster, opened on first use, and requests over them. Both ends of a
session prove their membership before it is used."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from verbena import transport
from verbena._native.kv import NOTICE_METHOD, answer_envelope
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster import membership
from verbena.kv.cluster.current_map import CurrentMap
from verbena.shards.cluster_map import Member
from verbena.shards.envelope import Envelope, Flag, Kind, parse
from verbena.transport import SessionState

METHOD = "shards"
NO_MIGRATION = bytes(16)
PROOF_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class OwnMember:
    """This node as a member: its id, its key, and the map that has the keys of the others."""

    id: str
    key: bytes = field(repr=False)
    map: CurrentMap = field(repr=False)

    async def introduce(self, session: transport.Session, to: str) -> str:
        """Proves to the other end of a session that this is a member, and requires that it prove to be the
        member `to`. Returns the key of that member in the map. DeniedError (not_a_member): it is another one.
        RemoteError: it refused."""
        while True:
            used = self._key_of(to)
            opener = membership.Opener(
                session, member=self.id, key=self.key, acceptor=to, revision=self.map.revision
            )
            challenge = await session.call(membership.METHOD, opener.hello(), timeout_s=PROOF_TIMEOUT_S)
            try:
                proof = opener.prove(challenge, bytes.fromhex(used))
            except VerbenaError as error:
                error.peer = session.peer
                if error.code != "not_a_member":
                    raise
                await self.map.refresh()  # the member may have been restarted
                if self._key_of(to) == used:
                    raise
                continue
            await session.call(membership.METHOD, proof, timeout_s=PROOF_TIMEOUT_S)
            return used

    def is_current(self, member: str, key: str) -> bool:
        """Whether the map still has this key for the member."""
        return bool(key) and self._key_of(member) == key

    def _key_of(self, member: str) -> str:
        known = self.map.map.members.get(member)
        return known.key if known is not None else ""


class MemberSessions:
    """`connect(address, wire)` opens a session; wire None: the best one available. `fallback`: the wire of
    sessions that are not "fast"."""

    def __init__(
        self,
        own: OwnMember,
        *,
        node: transport.Node,
        connect: Callable[[str, str | None], Awaitable[transport.Session]],
        fallback: str,
    ) -> None:
        self.own = own
        self.node = node
        self._connect = connect
        self._fallback = fallback
        self._sessions: dict[tuple[str, bool], transport.Session] = {}
        self._keys: dict[tuple[str, bool], str] = {}  # of the member in the map, when it proved its identity
        self._locks: dict[tuple[str, bool], asyncio.Lock] = {}
        self._sequence = 0
        self.observer: Callable[[str, bytes], None] | None = (
            None  # called with the wire and bytes of each message
        )

    async def session(self, to: Member, *, fast: bool) -> transport.Session:
        """Returns the open session with that member, on the best wire (`fast`) or on the fallback's; a new
        one if needed, or if the member's key in the map has changed. DeniedError (not_a_member): another
        process is at its address."""
        name = (to.id, fast)
        async with self._locks.setdefault(name, asyncio.Lock()):
            found = self._sessions.get(name)
            if found is not None and not self.own.is_current(to.id, self._keys[name]):
                await self._drop(name)
                found = None
            if found is None or found.closed or found.state is SessionState.FAILED:
                found, key = await self._open(to, None if fast else self._fallback)
                self._sessions[name], self._keys[name] = found, key
            return found

    async def _open(self, to: Member, wire: str | None) -> tuple[transport.Session, str]:
        session = await self._connect(to.sessions, wire)
        try:
            return session, await self.own.introduce(session, to.id)
        except BaseException:
            with contextlib.suppress(VerbenaError):
                await asyncio.shield(session.close())
            raise

    def envelope(self, kind: Kind, to: Member, payload: bytes = b"", **fields: object) -> Envelope:
        """Returns a message from this node to that member."""
        self._sequence += 1
        base = Envelope(
            kind=kind,
            source=bytes.fromhex(self.own.id),
            target=bytes.fromhex(to.id),
            first_slot=0,
            last_slot=0,
            migration=NO_MIGRATION,
            payload=payload,
            sequence=self._sequence,
            boot_epoch=self.node.boot_epoch,
        )
        return replace(base, **fields)  # type: ignore[arg-type]

    async def request(
        self, to: Member, message: Envelope, *, fast: bool = False, timeout_s: float | None = None
    ) -> Envelope:
        """Returns the member's answer. RemoteError (move_failed): it refused, with its reason. ProtocolError:
        the answer names another member."""
        session = await self.session(to, fast=fast)
        answered = await self.send(session, bytes(message), timeout_s=timeout_s)
        if answered.source.hex() != to.id:
            detail = "the answer names another member as its source"
            raise setup_error(
                "bad_envelope", operation="send a request to a member", peer=session.peer, detail=detail
            )
        return answered

    async def send(
        self, session: transport.Session, data: bytes, *, timeout_s: float | None = None
    ) -> Envelope:
        """Returns the answer to an encoded message over a given session. Errors as for request()."""
        if self.observer is not None:
            self.observer(session.wire or "", data)
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
            await self._drop((to.id, fast))

    async def _drop(self, name: tuple[str, bool]) -> None:
        session = self._sessions.pop(name, None)
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
    return answer_envelope(to.header(), payload, refused)
