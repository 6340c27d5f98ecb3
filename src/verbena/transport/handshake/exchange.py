"""Runs a handshake over an asyncio stream and closes the stream.
One time limit covers the whole handshake, so a peer cannot extend it by sending slowly."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import ssl
from collections.abc import Awaitable, Callable

from verbena.errors import VerbenaError, setup_error
from verbena.transport.handshake.agreement import Agreement, HelloClient, Offer, ProbeReply
from verbena.transport.handshake.hello import ClientHello, Event, ServerHello
from verbena.transport.handshake.tls import handshake_error

Decide = Callable[[HelloClient], Offer | Awaitable[Offer]]

_FLUSH_TIMEOUT_S = 1.0


async def dial(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: ClientHello, *, timeout_s: float
) -> Agreement:
    """Runs the client side of an "open" handshake. VerbenaError if it fails, TimedOutError after
    `timeout_s`. The stream is closed in any case."""
    end = await _bounded(_run(reader, writer, hello), writer, hello, timeout_s)
    if not isinstance(end, Agreement):
        raise TypeError("dial() is for a hello with purpose 'open'")
    return end


async def probe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: ClientHello, *, timeout_s: float
) -> ProbeReply:
    """Runs the client side of a "probe" handshake. Errors as for dial()."""
    end = await _bounded(_run(reader, writer, hello), writer, hello, timeout_s)
    if not isinstance(end, ProbeReply):
        raise TypeError("probe() is for a hello with purpose 'probe'")
    return end


async def serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    hello: ServerHello,
    decide: Decide,
    *,
    timeout_s: float,
    agreed: Callable[[Agreement], object] | None = None,
) -> Agreement | HelloClient:
    """Runs the server side; returns the Agreement, or the HelloClient of a probe. `decide` returns the offer
    for an authenticated client, or raises a VerbenaError to reject it, which is raised here too. `agreed`
    runs before WELCOME is sent, since the client's first link may arrive before serve() returns."""
    end = await _bounded(_run(reader, writer, hello, decide, agreed), writer, hello, timeout_s)
    assert isinstance(end, (Agreement, HelloClient))
    return end


async def _run(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    hello: ClientHello | ServerHello,
    decide: Decide | None = None,
    agreed: Callable[[Agreement], object] | None = None,
) -> Event:
    if isinstance(hello, ClientHello):
        writer.write(hello.start())
    while True:
        data = await _read(reader, hello)
        for event in hello.receive(data):
            end = event
            if isinstance(event, HelloClient) and event.purpose == "open":
                assert isinstance(hello, ServerHello)
                assert decide is not None
                end = await _answer(writer, hello, decide, event, agreed)
            if not isinstance(end, bytes):
                return end
            writer.write(end)


async def _read(reader: asyncio.StreamReader, hello: ClientHello | ServerHello) -> bytes:
    try:
        data = await reader.read(4096)
    except ssl.SSLError as error:
        raise handshake_error(error, peer=hello.peer) from error
    except OSError as error:
        hello.receive_eof(error.errno)
    return data or hello.receive_eof()


async def _answer(
    writer: asyncio.StreamWriter,
    hello: ServerHello,
    decide: Decide,
    client: HelloClient,
    agreed: Callable[[Agreement], object] | None,
) -> Agreement:
    try:
        offer = decide(client)
        if inspect.isawaitable(offer):
            offer = await offer
    except VerbenaError as error:
        hello.refuse(error)
        raise
    frame, agreement = hello.welcome(offer)
    assert isinstance(frame, bytes)
    assert isinstance(agreement, Agreement)
    if agreed is not None:
        agreed(agreement)
    writer.write(frame)
    return agreement


async def _bounded(
    hello_task: Awaitable[Event],
    writer: asyncio.StreamWriter,
    hello: ClientHello | ServerHello,
    timeout_s: float,
) -> Event:
    orderly = False
    try:
        try:
            end = await asyncio.wait_for(hello_task, timeout_s)
        except VerbenaError:
            writer.write(hello.refusal_frame)
            orderly = True
            raise
        except (asyncio.TimeoutError, TimeoutError) as error:
            detail = f"the hello was not over after {timeout_s:g} s: it stopped {hello.progress}"
            raise setup_error("connect_timeout", operation="hello", peer=hello.peer, detail=detail) from error
        orderly = True
        return end
    finally:
        await _close(writer, flush_s=_FLUSH_TIMEOUT_S if orderly else 0)


async def _close(writer: asyncio.StreamWriter, *, flush_s: float) -> None:
    writer.close()
    if flush_s:
        with contextlib.suppress(OSError, asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), flush_s)
    writer.transport.abort()
