"""Making a session's link on a wire: what is asked and answered in the private data, and taking it down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena import _native, verbs
from verbena.errors import RejectedError, VerbenaError
from verbena.transport.link_token import LinkAnswer, LinkRefusal, LinkRequest
from verbena.transport.wires import Wire

if TYPE_CHECKING:
    from verbena.transport.session import Session


@dataclass
class LiveLink:
    """A session's link with all that must be closed with it."""

    wire: Wire
    qp: verbs.QueuePair
    connection: verbs.Connection
    number: int = 0
    watcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Afterwards nothing of it can land any more."""
        if self.watcher is not None:
            self.watcher.cancel()
        await asyncio.to_thread(_close, self.wire, self.connection, self.qp)


def _close(wire: Wire, connection: verbs.Connection | None, qp: verbs.QueuePair) -> None:
    if connection is not None:
        connection.disconnect()
    wire.close_qp(qp)


async def dial_link(session: Session, wire: Wire, address: str, attempt: int) -> LiveLink:
    """Makes a link and gives it to the session, whose former link must have been closed.
    The errors of Context.connect(), or what the peer's refusal says."""
    settings = session.node.settings
    qp = wire.create_qp()
    prepared = wire.port.prepare(qp._native)
    connection: verbs.Connection | None = None
    try:
        request = LinkRequest(
            session.id, attempt, session._native.received, settings.window, settings.recv_buffer_size
        )
        connection = await wire.context.connect(
            qp,
            address,
            private_data=request.encode(key=session._key, wire=wire.name),
            timeout_s=settings.timeout_s,
        )
        answer = LinkAnswer.decode(connection.private_data, key=session._key, wire=wire.name, attempt=attempt)
        return _attach(session, wire, qp, connection, prepared, answer)
    except RejectedError as error:
        await _discard(wire, connection, qp, prepared)
        raise LinkRefusal.decode(error.private_data).error(operation="dial", peer=address) from error
    except BaseException:
        await _discard(wire, connection, qp, prepared)
        raise


async def accept_link(
    session: Session, wire: Wire, request: verbs.ConnectRequest, asked: LinkRequest
) -> LiveLink:
    """The server's side: the request was verified, and the session's former link closed."""
    settings = session.node.settings
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
        return _attach(session, wire, qp, connection, prepared, asked)
    except BaseException:
        await _discard(wire, connection, qp, prepared)
        raise


def _attach(
    session: Session,
    wire: Wire,
    qp: verbs.QueuePair,
    connection: verbs.Connection,
    prepared: _native.transport.Link,
    peer: LinkRequest | LinkAnswer,
) -> LiveLink:
    session._native.attach(
        prepared, received=peer.received, window=peer.window, peer_slot_bytes=peer.slot_bytes
    )
    return LiveLink(wire, qp, connection, session._native.links)


async def _discard(
    wire: Wire, connection: verbs.Connection | None, qp: verbs.QueuePair, prepared: _native.transport.Link
) -> None:
    await asyncio.shield(asyncio.to_thread(_close, wire, connection, qp))
    prepared.drop()


def refuse(request: verbs.ConnectRequest, error: VerbenaError) -> None:
    """Turns a link request down with the reason."""
    request.reject(private_data=LinkRefusal.of(error).encode())
