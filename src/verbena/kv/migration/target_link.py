"""The source's messages to the target of one move: numbered envelopes, requests, and the session for
copies."""

from __future__ import annotations

import json
from typing import Any

from verbena.errors import VerbenaError
from verbena.kv.migration.context import MapAccess, Sessions
from verbena.kv.migration.copy_path import CopyPath
from verbena.shards.cluster_map import Member
from verbena.shards.envelope import Envelope, Kind
from verbena.shards.migration import Facts
from verbena.transport import RemoteRegion, Session

REQUEST_TIMEOUT_S = 30.0
_BORROW_TIMEOUT_S = 5.0  # then the fallback is used


class TargetLink:
    """Sequence numbers count the messages of one attempt, whatever wire carries them."""

    def __init__(
        self, facts: Facts, path: CopyPath, *, map: MapAccess, sessions: Sessions, copy_sessions: Sessions
    ) -> None:
        self.sessions = sessions
        self._facts = facts
        self._path = path
        self._map = map
        self._copy_sessions = copy_sessions
        self._sequence = 0

    @property
    def target(self) -> Member:
        return self._map.map.members[self._facts.target]

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def skip_sequences(self, count: int) -> None:
        """Native code has used `count` numbers."""
        self._sequence += max(0, count)

    def message(self, kind: Kind, payload: bytes = b"", **fields: Any) -> Envelope:
        if "sequence" not in fields:
            fields["sequence"] = self.next_sequence()
        return self.sessions.envelope(
            kind,
            self.target,
            payload,
            first_slot=self._facts.slots.first,
            last_slot=self._facts.slots.last,
            migration=bytes.fromhex(self._facts.migration),
            **fields,
        )

    async def send(self, message: Envelope, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Envelope:
        """Returns the target's answer. VerbenaError: it refused, or cannot be reached."""
        return await self.sessions.request(self.target, message, timeout_s=timeout_s)

    async def request(
        self, kind: Kind, value: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Any]:
        """send() with JSON in both directions."""
        answer = await self.send(self.message(kind, json.dumps(value).encode()), timeout_s=timeout_s)
        found: dict[str, Any] = json.loads(answer.payload or b"{}")
        return found

    async def borrow(self, session: Session) -> list[RemoteRegion]:
        """Returns windows that the target lends to this session. Without a sequence number: the base copy
        has reserved those that follow."""
        message = bytes(self.message(Kind.WINDOWS, sequence=0))
        answer = await self.sessions.send(session, message, timeout_s=_BORROW_TIMEOUT_S)
        keys = json.loads(answer.payload)["windows"]
        return [RemoteRegion.from_bytes(bytes.fromhex(one)) for one in keys]

    async def copy_session(self) -> tuple[Session, bool]:
        """Returns the session for the base copy, and whether it is the RDMA one."""
        self._path.update()
        if self._path.is_available:
            try:
                session = await self._copy_sessions.session(self.target, fast=True)
                self._path.connected(session)
            except VerbenaError:
                self._path.failed()
            else:
                if self._path.is_available:
                    return session, True
        return await self.sessions.session(self.target, fast=False), False
