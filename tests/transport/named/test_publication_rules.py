"""Access to a published region: the rule of publish() on what the peer has proved, and its end."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy
import pytest
from support.security.memory import read_directly, resolve

import verbena
from verbena import errors, sync
from verbena.transport import Listener, Principal, Session
from verbena.verbs import Access

SECRET = "correct horse battery staple"


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", secret=SECRET) as listening:
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
async def session(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[Session]:
    async with verbena.connect(listener.address, secret=SECRET, wire=request.param) as connected:
        yield connected


NOT_PERMITTED: list[Any] = [
    set(),
    {"certificate:DNS:web", "uid:4000000"},
    lambda principal: False,
    lambda principal: Access(0),
    lambda principal: principal.name == "DNS:web",
]
PERMITTED: list[Any] = [
    None,
    {"secret"},
    ["uid:4000000", "secret"],
    lambda principal: True,
    lambda principal: principal.has_secret,
    lambda principal: Access.REMOTE_READ,
]


@pytest.mark.parametrize("rule", NOT_PERMITTED, ids=range(len(NOT_PERMITTED)))
async def test_a_session_that_the_rule_refuses_gets_nothing(
    listener: Listener, session: Session, rule: Any
) -> None:
    """No key, no version, not even the name in a list."""
    listener.publish("weights", numpy.arange(4), allow=rule)
    for use in (session.region("weights"), session.pull("weights"), anext(session.watch("weights"))):
        with pytest.raises(errors.DeniedError, match="region_not_permitted"):
            await use
    assert await session.regions() == []
    with pytest.raises(errors.UnsupportedError, match="may use: none"):
        await session.region("other")


@pytest.mark.parametrize("rule", PERMITTED, ids=range(len(PERMITTED)))
async def test_a_session_that_the_rule_admits_reads(listener: Listener, session: Session, rule: Any) -> None:
    listener.publish("weights", numpy.arange(4), allow=rule)
    assert await session.regions() == ["weights"]
    assert (await session.pull("weights")).tolist() == [0, 1, 2, 3]


async def test_a_rule_gives_each_principal_its_access(listener: Listener, session: Session) -> None:
    """The rule's answer replaces `access`; a changed answer ends what was lent before."""
    granted = Access.REMOTE_READ
    array = numpy.arange(4)
    listener.publish("weights", array, allow=lambda principal: granted)
    remote = await session.region("weights")
    with pytest.raises(errors.DeniedError):
        await session.write(remote, numpy.full(4, 9))
    granted = Access.REMOTE_READ | Access.REMOTE_WRITE
    writable = await session.region("weights")
    await session.write(writable, numpy.full(4, 9))
    assert array.tolist() == [9, 9, 9, 9]
    with pytest.raises(errors.DeniedError):
        await session.read(remote)
    granted = Access(0)
    with pytest.raises(errors.DeniedError, match="region_not_permitted"):
        await session.region("weights")
    with pytest.raises(errors.DeniedError):
        await session.read(writable)


async def test_new_memory_under_a_name_has_only_its_own_rule(listener: Listener, session: Session) -> None:
    """Who was admitted to the former memory, and may not use the new one, has neither."""
    listener.publish("weights", numpy.arange(4), allow={"secret"})
    remote = await session.region("weights")
    watch = session.watch("weights")
    await anext(watch)
    listener.publish("weights", numpy.arange(4), allow={"certificate:DNS:web"})
    with pytest.raises(errors.DeniedError):
        await session.read(remote)
    with pytest.raises(errors.DeniedError):
        await session.pull("weights")
    with pytest.raises(errors.DeniedError, match="region_not_permitted"):
        await anext(watch)


@pytest.mark.parametrize("rule", [None, {"secret"}], ids=["all", "some"])
async def test_a_key_is_worthless_to_another_session(listener: Listener, session: Session, rule: Any) -> None:
    """A session without a right of its own can neither use another's key nor resolve the region's name."""
    listener.publish("weights", numpy.arange(4), allow=rule)
    remote = await session.region("weights")
    lent = await resolve(session, remote.key)
    async with verbena.connect(listener.address, secret=SECRET, wire=session.wire) as thief:
        assert await read_directly(thief, lent) is None
        if rule is not None:  # by a rule, a session must ask for itself first
            with pytest.raises(errors.DeniedError):
                await thief.read(remote)


async def test_a_key_ends_with_its_session(listener: Listener, session: Session) -> None:
    """The list of members does not grow with the sessions that have ended."""
    publication = listener.publish("weights", numpy.arange(4), allow={"secret"})
    for _ in range(3):
        async with verbena.connect(listener.address, secret=SECRET) as other:
            await other.pull("weights")
            assert len(publication._members) == 1
    await session.pull("weights")
    assert set(publication._members) == {session.id}


@pytest.mark.parametrize("rule", ["secret", [5], 5])
async def test_what_is_not_a_rule_is_refused(listener: Listener, rule: Any) -> None:
    with pytest.raises((errors.StateError, TypeError)):
        listener.publish("weights", numpy.arange(4), allow=rule)


async def test_an_async_rule_is_refused(listener: Listener) -> None:
    async def rule(principal: Principal) -> bool:
        return True

    with pytest.raises(errors.StateError, match="async"):
        listener.publish("weights", numpy.arange(4), allow=rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [lambda principal: "yes", lambda principal: principal.nothing], ids=range(2)
)
async def test_a_rule_that_fails_admits_nobody(
    listener: Listener, session: Session, wrong: Callable[[Principal], Any]
) -> None:
    listener.publish("weights", numpy.arange(4), allow=wrong)
    with pytest.raises(errors.RemoteError):
        await session.region("weights")


def test_a_blocking_listener_asks_a_rule_in_a_thread() -> None:
    """A rule may wait there, and use the listener's sessions: the control thread goes on."""
    threads: list[str] = []

    def rule(principal: Principal) -> bool:
        threads.append(threading.current_thread().name)
        return principal.has_secret

    with sync.listen("127.0.0.1:0", secret=SECRET) as listener:
        listener.publish("weights", numpy.arange(4), allow=rule)
        with sync.connect(listener.address, secret=SECRET) as session:
            assert session.pull("weights").tolist() == [0, 1, 2, 3]
            assert next(session.watch("weights")) == 1
            assert session.regions() == ["weights"]
    assert len(threads) == 3
    assert "verbena-control" not in threads
