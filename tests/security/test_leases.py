"""Memory is lent to one session: a key that another session obtained gives it nothing, and a key ends with
the region, the link and the session to which it was lent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from support.security.memory import CONTENT, expose, holds, read_directly, resolve

import verbena
from verbena import errors
from verbena.transport import Listener, Request, Session

WIRES = ["shm", "iwarp"]


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}) as listening:
        yield listening


@pytest.fixture(params=WIRES)
async def pair(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[tuple[Session, Session]]:
    """Two sessions of different nodes with the listener."""
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(await verbena.connect(listener.address, wire=request.param))
            for _ in range(2)
        ]
        yield sessions[0], sessions[1]


@pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "exposed"])
async def test_a_key_opens_the_memory_for_its_own_session_only(
    listener: Listener, pair: tuple[Session, Session], allocated: bool
) -> None:
    """Even when the region is for all sessions: each one needs a memory lease of its own."""
    owner, thief = pair
    region = expose(listener, None, allocated=allocated)
    lent = await resolve(owner, region)
    assert await read_directly(owner, lent) == CONTENT
    assert await read_directly(thief, lent) is None
    assert bytes(await thief.read(region.remote)) == CONTENT  # by a memory lease of its own, on a new link
    assert bytes(await owner.read(region.remote)) == CONTENT


async def test_another_session_cannot_resolve_the_region(
    listener: Listener, pair: tuple[Session, Session]
) -> None:
    owner, thief = pair
    region = expose(listener, owner)
    assert bytes(await owner.read(region.remote)) == CONTENT
    with pytest.raises(errors.DeniedError):
        await resolve(thief, region)
    with pytest.raises(errors.DeniedError):
        await thief.read(region.remote)


async def test_a_key_ends_with_its_region(listener: Listener, pair: tuple[Session, Session]) -> None:
    owner, _ = pair
    region = expose(listener, owner)
    lent = await resolve(owner, region)
    assert await read_directly(owner, lent) == CONTENT
    remote = region.remote
    region.close()
    assert await read_directly(owner, lent) is None
    with pytest.raises(errors.DeniedError):
        await owner.read(remote)
    assert await owner.call("echo", b"the session goes on") == b"the session goes on"


async def test_a_key_ends_with_its_link(listener: Listener, pair: tuple[Session, Session]) -> None:
    """After a failover the session gets another key for the same region."""
    owner, _ = pair
    region = expose(listener, owner)
    lent = await resolve(owner, region)
    links = owner._native.links
    await owner.node.drill()
    assert await holds(lambda: owner._native.links > links and owner._native.has_link)
    assert (await resolve(owner, region)).rkey != lent.rkey
    assert await read_directly(owner, lent) is None
    assert bytes(await owner.read(region.remote)) == CONTENT


async def test_a_key_ends_with_its_session(listener: Listener, pair: tuple[Session, Session]) -> None:
    owner, thief = pair
    region = expose(listener, None)
    lent = await resolve(owner, region)
    await owner.close()
    assert await holds(lambda: len(listener.sessions) == 1)
    assert await read_directly(thief, lent) is None
