"""Wires that are dialled directly, without a session."""

from __future__ import annotations

import asyncio

import pytest

import verbena
from verbena import errors
from verbena.transport.direct import DirectListener


@pytest.mark.parametrize("url", ["shm://", "iwarp://127.0.0.1:0"])
async def test_two_programs_meet_on_a_wire_without_a_session(url: str) -> None:
    """SEND, RECV and WRITE between the queue pairs from dial() and from a listener."""
    async with DirectListener(url, private_data=b"welcome") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        async with await verbena.dial(listener.url, private_data=b"hello") as client:
            assert client.private_data.rstrip(b"\0") == b"welcome"
            server = await accepting
            inbox, window = server.pd.allocate(64), server.pd.allocate(64)
            receiving = asyncio.ensure_future(server.qp.recv(inbox))
            await asyncio.sleep(0)
            await client.qp.send(b"by the wire alone")
            received = await receiving
            assert bytes(memoryview(inbox)[: received.byte_count]) == b"by the wire alone"
            await client.qp.write(b"one-sided", window.remote[:9])
            assert bytes(memoryview(window)[:9]) == b"one-sided"


@pytest.mark.parametrize("url", ["host:1", "ftp://host:1", ""])
async def test_an_address_without_a_known_scheme_is_refused(url: str) -> None:
    """The error lists the known schemes."""
    with pytest.raises(errors.AddressError, match="iwarp://"):
        await verbena.dial(url)


async def test_an_address_without_a_listener_is_named_in_the_error() -> None:
    """The same error as from connect() of the verbs."""
    with pytest.raises(errors.VerbenaError, match="connect"):
        await verbena.dial("iwarp://127.0.0.1:9", timeout_s=2)
