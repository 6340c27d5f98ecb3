"""A lease: memory that a service has lent to one session. The attacks on it are in lease_attacks.py, the
services in lending_services.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis

import verbena
from support.security.memory import CONTENT, ECHO, Lent, is_accepted, linked, read_directly
from verbena import _native
from verbena.transport import Node, Session, Settings
from verbena.verbs import Access, Opcode

VERIFY = 3  # the native method that compares a checksum with memory that is lent for writing
RANGE = struct.Struct("<QQQII")  # region, offset, length, checksum, unused


class Party(Protocol):
    """One end of a session with the service: it tries accesses below the session's API."""

    @property
    def id(self) -> int: ...

    @property
    def links(self) -> int:
        """The number of the session's link. A refused access ends a link."""

    async def read(self, lent: Lent) -> bytes | None:
        """None: the access was refused."""

    async def accepts(self, opcode: Opcode, lent: Lent, content: bytes) -> bool:
        """Whether an access is executed."""

    async def works(self) -> bool: ...

    async def close(self) -> None: ...


class SessionParty:
    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def id(self) -> int:
        return self.session.id

    @property
    def links(self) -> int:
        return self.session._native.links

    async def read(self, lent: Lent) -> bytes | None:
        return await read_directly(self.session, lent)

    async def accepts(self, opcode: Opcode, lent: Lent, content: bytes) -> bool:
        return await is_accepted(self.session, lent, opcode, content)

    async def works(self) -> bool:
        await linked(self.session)
        return await self.call_native(ECHO, b"undisturbed") == b"undisturbed"

    async def call_native(self, method: int, payload: bytes) -> bytes:
        return await asyncio.to_thread(self.session._native.call, method, payload, 5.0)

    async def close(self) -> None:
        await self.session.close()


@dataclass
class Lease:
    """`find` returns the memory that the owner may use at present, with its key; `offset`: of the content in
    it. `region`: the name with which the owner asks for it; 0: it has none. `is_private`: no other session
    may ask. `use`: whether the service still serves the owner's session. `revoke` ends the lease by the
    service's own means; `revoking_ends_session`: the service closes the session too. `later` opens another
    session of the owner's node."""

    owner: Party
    access: Access
    find: Callable[[], Awaitable[Lent]]
    use: Callable[[], Awaitable[bool]]
    revoke: Callable[[], Awaitable[Any]]
    later: Callable[[], Awaitable[Party]]
    region: int = 0
    offset: int = 0
    content: bytes = CONTENT
    is_private: bool = True
    revoking_ends_session: bool = False
    whole: Lent = field(init=False)

    async def renew(self) -> None:
        """After the owner's link was lost: its key was lost with it."""
        self.whole = await self.find()

    @property
    def lent(self) -> Lent:
        """The part with the content."""
        return Lent(self.whole.addr + self.offset, len(self.content), self.whole.rkey)

    async def is_usable(self) -> bool:
        """The owner uses the memory as it may: it writes the content if it can, and finds it there."""
        if self.access & Access.REMOTE_WRITE and not await self.owner.accepts(
            Opcode.WRITE, self.lent, self.content
        ):
            return False
        return await self.holds_content()

    async def holds_content(self) -> bool:
        if self.access & Access.REMOTE_READ:
            return await self.owner.read(self.lent) == self.content
        assert isinstance(self.owner, SessionParty)
        checksum = _native.crc32c(self.content)
        payload = RANGE.pack(self.region, self.offset, len(self.content), checksum, 0)
        return (await self.owner.call_native(VERIFY, payload))[0] == 1


@dataclass
class LeaseSetup:
    """A running service at `address`, with its files in `folder`. `handle`: what else the service's row
    needs."""

    address: str
    folder: Path
    handle: Any
    wire: str
    secret: str
    stack: contextlib.AsyncExitStack

    @property
    def settings(self) -> Settings:
        return Settings(
            wires=(self.wire,),
            secret=self.secret.encode(),
            recv_buffer_pool_size=256,
            retry_delay_ms=20,
        )

    def admin(self) -> redis.Redis:
        """A client of the Unix socket of a store."""
        return redis.Redis(unix_socket_path=str(self.folder / "store.sock"))

    async def node(self) -> Node:
        """A node of its own."""
        node = await asyncio.to_thread(Node, self.settings)
        self.stack.push_async_callback(asyncio.to_thread, node.close)
        return node

    async def connect(self, node: Node | None = None, **options: Any) -> Session:
        """A session with the service, of a new node or of this one."""
        node = node or await self.node()
        session = await verbena.connect(
            self.address, node=node, wire=self.wire, config=self.settings, **options
        )
        return await self.stack.enter_async_context(session)

    async def party(self, node: Node | None = None) -> SessionParty:
        return SessionParty(await self.connect(node))

    async def has_ended(self, party: Party, observer: SessionParty) -> bool:
        """Waits until the service has no session with this party."""

        async def is_listed() -> bool:
            status = json.loads(await observer.session.call("verbena.status"))
            return f"{party.id:x}" in {row["id"] for row in status["sessions"]}

        for _ in range(500):
            if not await is_listed():
                return True
            await asyncio.sleep(0.01)
        return False
