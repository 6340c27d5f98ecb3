"""Runs a hello over an asyncio stream, within one time limit for all of it, and closes the stream.

The limit is for the whole hello: a peer that sends a byte now and then gains nothing by it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import ssl
from collections.abc import Awaitable, Callable

from verbena.errors import VerbenaError, setup_error
from verbena.transport.handshake.agreement import Agreement, Alive, Caller, Offer
from verbena.transport.handshake.hello import ClientHello, Event, ServerHello
from verbena.transport.handshake.tls import handshake_error

Decide = Callable[[Caller], Offer | Awaitable[Offer]]

_FAREWELL_S = 1.0


async def dial(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: ClientHello, *, timeout_s: float
) -> Agreement:
    """The client's end of an "open" hello. VerbenaError if it fails, TimedOutError if it takes too long."""
    end = await _bounded(_converse(reader, writer, hello), writer, hello, timeout_s)
    if not isinstance(end, Agreement):
        raise TypeError("dial() is for a hello with purpose 'open'")
    return end


async def probe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: ClientHello, *, timeout_s: float
) -> Alive:
    """The client's end of a "probe" hello; errors as for dial()."""
    end = await _bounded(_converse(reader, writer, hello), writer, hello, timeout_s)
    if not isinstance(end, Alive):
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
) -> Agreement | Caller:
    """The server's end: an Agreement, or the Caller if it only probed. `decide` is asked what to offer a
    caller that has proven itself; a VerbenaError from it turns the caller down, and is raised again here.
    `agreed` is told before the caller is, whose next step may come before the stream is closed."""
    end = await _bounded(_converse(reader, writer, hello, decide, agreed), writer, hello, timeout_s)
    assert isinstance(end, (Agreement, Caller))
    return end


async def _converse(
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
            if isinstance(event, Caller) and event.purpose == "open":
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
    caller: Caller,
    agreed: Callable[[Agreement], object] | None,
) -> Agreement:
    try:
        offer = decide(caller)
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
    conversation: Awaitable[Event],
    writer: asyncio.StreamWriter,
    hello: ClientHello | ServerHello,
    timeout_s: float,
) -> Event:
    orderly = False
    try:
        try:
            end = await asyncio.wait_for(conversation, timeout_s)
        except VerbenaError:
            writer.write(hello.farewell)
            orderly = True
            raise
        except (asyncio.TimeoutError, TimeoutError) as error:
            detail = f"the hello was not over after {timeout_s:g} s: it stopped {hello.progress}"
            raise setup_error("connect_timeout", operation="hello", peer=hello.peer, detail=detail) from error
        orderly = True
        return end
    finally:
        await _close(writer, flush_s=_FAREWELL_S if orderly else 0)


async def _close(writer: asyncio.StreamWriter, *, flush_s: float) -> None:
    writer.close()
    if flush_s:
        with contextlib.suppress(OSError, asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), flush_s)
    writer.transport.abort()
