"""A session whose messages the test writes itself, so that it acknowledges a reply only when the test wants
it to. Until then the peer lends the memory of a long reply."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass

from support.security.memory import ECHO, Lent
from verbena import _native, verbs
from verbena.errors import BrokenLinkError, DeniedError
from verbena.transport import Node
from verbena.transport.direct import DirectLink
from verbena.transport.failover.dialer import Dialer
from verbena.transport.handshake.agreement import Agreement
from verbena.transport.handshake.link_token import LinkAnswer, LinkRequest
from verbena.transport.requests import method_number
from verbena.verbs import Opcode, RemoteMemory

# Version, kind, flags, length, sequence, acknowledged, call, method; then a CRC32C and the payload.
_HEADER = struct.Struct("<BBHIQQQI")
_CRC = struct.Struct("<I")
_REFERENCE = struct.Struct("<QQII")  # address, length, key, CRC32C
_VERSION, _BY_REFERENCE = 1, 1
_REQUEST, _REPLY, _CLOSE = 1, 2, 7
_SLOTS, _SLOT_BYTES = 32, 4096  # the receives; the longest message
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Reply:
    """The payload, or where the peer has lent it."""

    payload: bytes
    lent: Lent | None


class RawSession:
    """Open it with open(), and close() it."""

    def __init__(self, dialer: Dialer, agreement: Agreement, wire: str) -> None:
        self.links = 0
        self.id = agreement.session_id
        self._dialer, self._agreement, self._wire = dialer, agreement, wire
        self._link: DirectLink | None = None
        self._receives: deque[asyncio.Task[bytes]] = deque()  # as they were posted
        self._sent = self._received = self._acknowledged = 0
        self._calls = itertools.count(1)

    @classmethod
    async def open(cls, node: Node, address: str, wire: str) -> RawSession:
        """`node`: what the handshake names, with its secret."""
        dialer = Dialer(node, address, tls=None, wire=wire)
        session = cls(dialer, await dialer._hello(), wire)
        await session._dial()
        return session

    async def call(self, method: str, payload: bytes) -> Reply:
        return await self._call(method_number(method), payload)

    async def works(self) -> bool:
        return (await self._call(ECHO, b"undisturbed")).payload == b"undisturbed"

    async def read(self, lent: Lent) -> bytes | None:
        """None: the access was refused."""
        assert self._link is not None
        local = self._link.pd.allocate(lent.length)
        accepted = await self._try(self._link.qp.read(local, _remote(lent)))
        return bytes(memoryview(local)) if accepted else None

    async def accepts(self, opcode: Opcode, lent: Lent, content: bytes) -> bool:
        """Whether an access is executed. If it is refused, the session gets a new link."""
        assert self._link is not None
        local = self._link.pd.allocate(lent.length)
        memoryview(local)[:] = content
        qp, remote = self._link.qp, _remote(lent)
        if opcode is Opcode.READ:
            return await self._try(qp.read(local, remote))
        if opcode is Opcode.WRITE:
            return await self._try(qp.write(local, remote))
        return await self._try(qp.fetch_add(remote, 1))

    async def acknowledge(self) -> None:
        """Everything that was received. Returns when the peer knows it."""
        self._acknowledged = self._received
        assert await self.works()

    async def close(self) -> None:
        if self._link is not None:
            self._sent += 1
            with contextlib.suppress(BrokenLinkError):  # the peer may disconnect before the completion
                await self._send(_CLOSE, b"", sequence=self._sent)
            await self._drop()

    async def _call(self, method: int, payload: bytes) -> Reply:
        call = next(self._calls)
        self._sent += 1
        await self._send(_REQUEST, payload, sequence=self._sent, call=call, method=method)
        while True:
            message = await asyncio.wait_for(self._receives.popleft(), _TIMEOUT_S)
            _, kind, flags, _, sequence, _, answered, _ = _HEADER.unpack_from(message)
            self._received = max(self._received, sequence)
            if answered == call:
                assert kind == _REPLY, message
                payload = message[_HEADER.size + _CRC.size :]
                return Reply(
                    payload, Lent(*_REFERENCE.unpack(payload)[:3]) if flags & _BY_REFERENCE else None
                )

    async def _send(
        self, kind: int, payload: bytes, *, sequence: int = 0, call: int = 0, method: int = 0
    ) -> None:
        assert self._link is not None
        length = len(payload)
        header = _HEADER.pack(_VERSION, kind, 0, length, sequence, self._acknowledged, call, method)
        message = header + _CRC.pack(_native.crc32c(header + payload)) + payload
        local = self._link.pd.allocate(len(message))
        memoryview(local)[:] = message
        await self._link.qp.send(local)

    async def _try(self, access: Awaitable[object]) -> bool:
        try:
            await access
        except (DeniedError, BrokenLinkError):
            await self._drop()
            await self._dial()
            return False
        return True

    async def _dial(self) -> None:
        self.links += 1
        self._acknowledged = self._received
        link = self._link = DirectLink(verbs.open_device(self._wire), owns_context=True, depth=2 * _SLOTS)
        key, wire = self._agreement.key, self._wire
        request = LinkRequest(self.id, self.links, self._received, _SLOTS, _SLOT_BYTES)
        self._dialer._wires = {offer.name: offer.address for offer in self._agreement.wires}
        link.connection = await link.context.connect(
            link.qp,
            self._dialer._address_of(wire),
            private_data=request.encode(key=key, wire=wire),
            timeout_s=5,
        )
        answer = LinkAnswer.decode(link.private_data, key=key, wire=wire, attempt=self.links)
        assert answer.received == self._sent
        inbox = link.pd.allocate(_SLOTS * _SLOT_BYTES)

        async def receive(at: int) -> bytes:
            received = await link.qp.recv(inbox[at : at + _SLOT_BYTES])
            return bytes(memoryview(inbox)[at : at + received.byte_count])

        slots = range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES)
        self._receives = deque(asyncio.ensure_future(receive(at)) for at in slots)
        await asyncio.sleep(0)  # they are posted

    async def _drop(self) -> None:
        link, self._link = self._link, None
        assert link is not None
        await asyncio.to_thread(link.close)
        await asyncio.gather(*self._receives, return_exceptions=True)


def _remote(lent: Lent) -> RemoteMemory:
    return RemoteMemory(lent.addr, lent.rkey, lent.length)
