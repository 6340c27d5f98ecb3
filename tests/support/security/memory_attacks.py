"""Attacks with keys of memory: another session's, former ones, and guesses."""

from __future__ import annotations

import secrets

import pytest

from support.security.attack_setup import AttackSetup
from support.security.memory import (
    CONTENT,
    Lent,
    add_directly,
    expose,
    holds,
    linked,
    read_directly,
    resolve,
    write_directly,
)
from verbena import errors
from verbena.transport import RemoteRegion
from verbena.verbs import Access

GUESSES = 12


async def another_sessions_key_read(setup: AttackSetup) -> None:
    """Even of a region that is for all sessions: each one needs a lease of its own."""
    owner, thief = await setup.two()
    for region in (expose(setup.listener, owner), expose(setup.listener, allocated=False)):
        lent = await resolve(owner, region)
        assert await read_directly(owner, lent) == CONTENT
        assert await read_directly(thief, lent) is None


async def another_sessions_key_write(setup: AttackSetup) -> None:
    owner, thief = await setup.two()
    for allocated in (True, False):
        region = expose(setup.listener, owner, access=Access.ALL, allocated=allocated)
        lent = await resolve(owner, region)
        await write_directly(thief, lent, b"x" * len(CONTENT))
        assert bytes(region) == CONTENT
        await write_directly(owner, lent, CONTENT[::-1])
        assert bytes(region) == CONTENT[::-1]


async def another_sessions_key_atomic(setup: AttackSetup) -> None:
    owner, thief = await setup.two()
    region = expose(setup.listener, owner, access=Access.ALL)
    lent = await resolve(owner, region)
    assert await add_directly(thief, lent) is None
    assert bytes(region) == CONTENT
    assert await add_directly(owner, lent) == CONTENT[:8]
    assert bytes(region) != CONTENT


async def key_after_revocation(setup: AttackSetup) -> None:
    owner, _ = await setup.two()
    region = expose(setup.listener, owner)
    lent, remote = await resolve(owner, region), region.remote
    assert await read_directly(owner, lent) == CONTENT
    region.close()
    assert await read_directly(owner, lent) is None
    with pytest.raises(errors.DeniedError):
        await owner.read(remote)


async def key_after_close(setup: AttackSetup) -> None:
    """Neither another session nor a later one of the same node can use it."""
    owner, thief = await setup.two()
    region = expose(setup.listener)
    lent = await resolve(owner, region)
    assert await read_directly(owner, lent) == CONTENT
    await owner.close()
    assert await holds(lambda: len(setup.listener.sessions) == 1)
    assert await read_directly(thief, lent) is None
    assert await read_directly(await setup.connect(), lent) is None


async def key_after_the_region(setup: AttackSetup) -> None:
    """The memory is freed, and other memory takes its place."""
    owner, _ = await setup.two()
    region = expose(setup.listener, owner)
    lent, name = await resolve(owner, region), region.remote.key
    region.close()
    del region
    fresh = [expose(setup.listener, owner) for _ in range(8)]
    assert await read_directly(owner, lent) is None
    await linked(owner)
    with pytest.raises(errors.DeniedError):
        await resolve(owner, name)
    assert bytes(await owner.read(fresh[0].remote)) == CONTENT


async def guessed_key(setup: AttackSetup) -> None:
    """Each wrong guess ends the link of the session."""
    owner, thief = await setup.two()
    region = expose(setup.listener, owner)
    lent = await resolve(owner, region)
    near = {lent.rkey ^ 1, lent.rkey ^ 1 << 16, lent.rkey ^ 1 << 31}
    for guess in near | {secrets.randbits(32) for _ in range(GUESSES)}:
        links = thief._native.links
        assert await read_directly(thief, Lent(lent.addr, lent.length, guess)) is None
        assert await holds(lambda links=links: thief._native.links > links, 20)
    with pytest.raises(errors.DeniedError):
        await resolve(thief, secrets.randbits(64))


async def saved_layout(setup: AttackSetup) -> None:
    """The name of a region that another session has saved."""
    owner, thief = await setup.two()
    region = expose(setup.listener, owner)
    saved = region.remote.to_bytes()
    assert bytes(await owner.read(RemoteRegion.from_bytes(saved))) == CONTENT
    with pytest.raises(errors.DeniedError):
        await thief.read(RemoteRegion.from_bytes(saved))
    with pytest.raises(errors.DeniedError):
        await thief.read_into(RemoteRegion.from_bytes(saved), bytearray(len(CONTENT)))
