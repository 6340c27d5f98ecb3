"""The set-up of an attack: a listener with a secret on one wire and a weaker one, sessions of several nodes,
and a process between them that changes what it forwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import verbena
from verbena.errors import RejectedError
from verbena.transport import Listener, Node, Request, Session, Settings
from verbena.transport.handshake.frames import Fields, FrameType
from verbena.transport.handshake.link_token import LinkRefusal, LinkRefusalReason
from verbena.transport.wires import Wire

SECRET = "correct horse battery staple"
WEAKER = {"shm": "iwarp", "iwarp": "shm", "quic": "iwarp", "ibv": "iwarp"}  # the second wire, by wire
FRAME = struct.Struct("!4sBI")

Change = Callable[[FrameType, Fields], Fields]


def echo(request: Request) -> bytes:
    return request.payload


@dataclass
class AttackSetup:
    wire: str
    host: str
    settings: Settings
    listener: Listener
    stack: contextlib.AsyncExitStack = field(repr=False)

    @property
    def weaker(self) -> str:
        return WEAKER[self.wire]

    async def connect(self, address: str = "", **settings: Any) -> Session:
        """A session of a new node, on this wire, with these settings."""
        chosen = replace(self.settings, **settings)
        session = await verbena.connect(address or self.listener.address, wire=self.wire, config=chosen)
        return await self.stack.enter_async_context(session)

    async def two(self) -> tuple[Session, Session]:
        """The session that is attacked, and the attacker's."""
        return await self.connect(), await self.connect()

    def address_of(self, wire: str) -> str:
        (found,) = (offer.address for offer in self.listener._wire_listeners.offers if offer.name == wire)
        return f"{self.host}{found}" if found.startswith(":") else found

    async def dial(self, node: Node, token: bytes) -> LinkRefusalReason:
        """Opens a link on this wire with this token. Returns why it is refused; it must be."""
        return await dial(node.wires[self.wire], self.address_of(self.wire), token)

    async def node(self) -> Node:
        """A node of its own, without a session."""
        node = await asyncio.to_thread(Node, self.settings)
        self.stack.push_async_callback(asyncio.to_thread, node.close)
        return node

    async def relay(self, change: Change | None = None) -> Relay:
        relay = Relay(self.listener.address, change)
        await relay.open(self.host)
        self.stack.push_async_callback(relay.close)
        return relay


@contextlib.asynccontextmanager
async def set_up(wire: str, settings: Settings, host: str = "127.0.0.1") -> AsyncIterator[AttackSetup]:
    """`settings`: what the wire needs, such as certificates or a device."""
    chosen = replace(
        settings,
        secret=SECRET.encode(),
        wires=(wire, WEAKER[wire]),
        recv_buffer_pool_size=256,
        retry_delay_ms=20,
        connection_retries=1,
    )
    async with contextlib.AsyncExitStack() as stack:
        listener = await verbena.listen(f"{host}:0", handlers={"echo": echo}, config=chosen)
        await stack.enter_async_context(listener)
        yield AttackSetup(wire, host, chosen, listener, stack)


async def dial(wire: Wire, address: str, token: bytes) -> LinkRefusalReason:
    """Opens a link with this token. Returns why it is refused; it must be."""
    qp = wire.create_qp()
    try:
        connection = await wire.context.connect(qp, address, private_data=token, timeout_s=5)
    except RejectedError as error:
        return LinkRefusal.decode(error.private_data).reason
    finally:
        await asyncio.to_thread(wire.close_qp, qp)
    connection.disconnect()
    raise AssertionError("the link was accepted")


class Relay:
    """Forwards handshakes in both directions. Records the bytes of the client, and applies `change` to the
    fields of each frame."""

    def __init__(self, to: str, change: Change | None) -> None:
        self.recorded: list[bytes] = []
        self.address = ""
        self._host, _, self._port = to.rpartition(":")
        self._change = change
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str) -> None:
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, int(self._port))
        for task in (
            asyncio.ensure_future(self._forward(reader, up_writer, self.recorded)),
            asyncio.ensure_future(self._forward(up_reader, writer, [])),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: list[bytes]
    ) -> None:
        try:
            while True:
                header = await reader.readexactly(FRAME.size)
                magic, number, length = FRAME.unpack(header)
                body = await reader.readexactly(length)
                if self._change is not None:
                    fields = self._change(FrameType(number), json.loads(body))
                    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
                frame = FRAME.pack(magic, number, len(body)) + body
                record.append(frame)
                writer.write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def replay(address: str, recorded: list[bytes]) -> bytes:
    """Sends the recorded bytes of a handshake again; returns all that the listener answers."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for frame in recorded:
        writer.write(frame)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
