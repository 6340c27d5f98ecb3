"""Creates and closes the links of a session. The private data of the connection carries the link tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena import _native, _threads, verbs
from verbena.errors import RejectedError, VerbenaError, setup_error
from verbena.transport.handshake.link_token import LinkAnswer, LinkRefusal, LinkRequest
from verbena.transport.wires import Wire

if TYPE_CHECKING:
    from verbena.transport.session import Session

_LOOK_EVERY_S = 0.001


@dataclass
class LiveLink:
    """An established link of a session with the resources that are closed with it."""

    wire: Wire
    qp: verbs.QueuePair
    connection: verbs.Connection
    number: int = 0
    watcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Disconnects and closes the queue pair. Afterwards no data of this link can arrive."""
        if self.watcher is not None:
            self.watcher.cancel()
        await _threads.workers.run(_close, self.wire, self.connection, self.qp)


def _close(wire: Wire, connection: verbs.Connection | None, qp: verbs.QueuePair) -> None:
    if connection is not None:
        connection.disconnect()
    wire.close_qp(qp)


async def dial_link(session: Session, wire: Wire, address: str, attempt: int) -> LiveLink:
    """Dials a link and attaches it to the session. A working former link stays until the new one is up.
    Raises the errors of Context.connect(), the error that the peer's refusal names, or connect_timeout if
    the change-over does not finish."""
    settings = session.node.settings
    replaces = session._link is not None and session._native.has_link
    if not replaces:
        await session._drop_now()
    qp = wire.create_qp()
    prepared = wire.port.prepare(qp._native)
    connection: verbs.Connection | None = None
    try:
        request = LinkRequest(
            session.id,
            attempt,
            session._native.received,
            settings.window,
            settings.recv_buffer_size,
            replaces,
        )
        connection = await wire.context.connect(
            qp,
            address,
            private_data=request.encode(key=session._key, wire=wire.name),
            timeout_s=settings.timeout_s,
        )
        answer = LinkAnswer.decode(connection.private_data, key=session._key, wire=wire.name, attempt=attempt)
        if replaces:
            await _change_over(session, prepared)
        return _attach(session, wire, qp, connection, prepared, answer, acknowledged=request.received)
    except RejectedError as error:
        await _discard(wire, connection, qp, prepared)
        raise LinkRefusal.decode(error.private_data).error(operation="dial", peer=address) from error
    except BaseException:
        await _discard(wire, connection, qp, prepared)
        raise


async def accept_link(
    session: Session, wire: Wire, request: verbs.ConnectRequest, asked: LinkRequest
) -> LiveLink:
    """Accepts a link request that was verified, and attaches the link. The server side of dial_link()."""
    settings = session.node.settings
    if not asked.replaces:
        await session._drop_now()
    qp = wire.create_qp()
    prepared = wire.port.prepare(qp._native)
    connection: verbs.Connection | None = None
    try:
        answer = LinkAnswer(session._native.received, settings.window, settings.recv_buffer_size)
        connection = await request.accept(
            qp,
            private_data=answer.encode(key=session._key, wire=wire.name, attempt=asked.attempt),
            timeout_s=settings.timeout_s,
        )
        if asked.replaces:
            await _change_over(session, prepared)
        return _attach(session, wire, qp, connection, prepared, asked, acknowledged=answer.received)
    except BaseException:
        await _discard(wire, connection, qp, prepared)
        raise


async def _change_over(session: Session, prepared: _native.transport.Link) -> None:
    """Closes the former link after the new one is up, and waits until the peer has done so too: only then
    can no data of the former link arrive at either end. connect_timeout if the peer does not."""
    await session._drop_now()
    prepared.send_ready()
    deadline = asyncio.get_running_loop().time() + session.node.settings.timeout_s
    while not prepared.has_received:
        if asyncio.get_running_loop().time() > deadline:
            raise setup_error(
                "connect_timeout",
                operation="change over",
                peer=session.peer,
                detail="nothing arrived on the new link",
            )
        await asyncio.sleep(_LOOK_EVERY_S)


def _attach(
    session: Session,
    wire: Wire,
    qp: verbs.QueuePair,
    connection: verbs.Connection,
    prepared: _native.transport.Link,
    peer: LinkRequest | LinkAnswer,
    *,
    acknowledged: int,
) -> LiveLink:
    session._native.attach(
        prepared,
        received=peer.received,
        acknowledged=acknowledged,
        window=peer.window,
        peer_buffer_bytes=peer.slot_bytes,
    )
    return LiveLink(wire, qp, connection, session._native.links)


async def _discard(
    wire: Wire, connection: verbs.Connection | None, qp: verbs.QueuePair, prepared: _native.transport.Link
) -> None:
    await asyncio.shield(_threads.workers.run(_close, wire, connection, qp))
    prepared.drop()


def refuse(request: verbs.ConnectRequest, error: VerbenaError) -> None:
    """Rejects a link request and sends the reason."""
    request.reject(private_data=LinkRefusal.of(error).encode())
