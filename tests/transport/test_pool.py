"""The pool: which task gets a session, when, and in which state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import verbena
from verbena import errors
from verbena.config import loads
from verbena.transport import Listener, Pool, Request, SessionState, Settings
from verbena.transport.limiter import FairLimiter

SECRET = "correct horse battery staple"
HASTY = Settings(resume_timeout_s=1.0, retry_delay_ms=50)


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, secret=SECRET) as listening:
        yield listening


@pytest.fixture
async def another() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, secret=SECRET) as listening:
        yield listening


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


async def settled() -> None:
    """Lets tasks run as far as they can without I/O."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_session_is_used_again(listener: Listener) -> None:
    """Borrowers one after the other share one session; two at the same time get two sessions on one node."""
    async with verbena.Pool(secret=SECRET) as pool:
        async with pool.session(listener.address) as first:
            assert await first.call("echo", b"1") == b"1"
        async with pool.session(listener.address) as again, pool.session(listener.address) as second:
            assert again is first
            assert second is not first
            assert second.node is first.node
            assert await second.call("echo", b"2") == b"2"
        stats = pool.stats()
        assert (stats.opened, stats.reused, stats.evicted, stats.failed) == (2, 1, 0, 0)
        assert (stats.connections, stats.lent, stats.idle) == (2, 0, 2)
        assert stats.idle_by_address == {listener.address: 2}
        assert "2 idle" in repr(pool)
    assert first.closed
    assert second.closed


async def test_the_bound_holds_and_the_first_to_wait_is_the_first_served(listener: Listener) -> None:
    """Never more than max_connections sessions, and waiting tasks are served in order."""
    order: list[int] = []
    lent = 0

    async def borrow(number: int) -> None:
        nonlocal lent
        async with pool.session(listener.address) as session:
            lent += 1
            assert lent <= 2
            assert len(listener.sessions) <= 2
            order.append(number)
            await session.call("echo", b"x")
            lent -= 1

    async with Pool(max_connections=2, secret=SECRET) as pool:
        async with pool.session(listener.address), pool.session(listener.address):
            tasks = []
            for number in range(10):
                tasks.append(asyncio.ensure_future(borrow(number)))
                await settled()
            assert pool.stats().waiting == 10
        await asyncio.gather(*tasks)
        assert order == list(range(10))
        assert pool.stats().opened == 2
        assert pool.stats().reused == 10


async def test_waiting_ends_in_time(listener: Listener) -> None:
    """A TimedOutError names the limit, and the task leaves the queue, as a cancelled task does."""
    async with Pool(max_connections=1, secret=SECRET) as pool:
        async with pool.session(listener.address):
            with pytest.raises(errors.TimedOutError, match="all 1 sessions stayed lent"):
                async with pool.session(listener.address, timeout_s=0.02):
                    pytest.fail("lent twice")
            waiting = asyncio.ensure_future(pool.session(listener.address).__aenter__())
            await settled()
            assert pool.stats().waiting == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert pool.stats().waiting == 0
        async with pool.session(listener.address, timeout_s=10) as session:
            assert await session.call("echo", b"on") == b"on"


async def test_room_is_made_for_another_address(listener: Listener, another: Listener) -> None:
    """The session that has been idle longest is closed."""
    async with Pool(max_connections=2, secret=SECRET) as pool:
        async with pool.session(listener.address) as oldest, pool.session(listener.address) as newer:
            pass
        oldest, newer = newer, oldest  # the inner block ended first
        async with pool.session(another.address) as other:
            assert await other.call("echo", b"x") == b"x"
            assert oldest.closed
            assert not newer.closed
            assert pool.stats().connections == 2
        assert pool.stats().evicted == 1


async def test_an_idle_session_is_closed_after_a_while(listener: Listener) -> None:
    """It is closed idle_timeout_s after its return, and the next borrower gets a new one."""
    async with Pool(idle_timeout_s=0.05, secret=SECRET) as pool:
        async with pool.session(listener.address) as session:
            await asyncio.sleep(0.1)
            assert not session.closed
        await until(lambda: pool.stats().connections == 0)
        assert session.closed
        async with pool.session(listener.address) as new:
            assert new is not session
        assert pool.stats().evicted >= 1
        assert pool.stats().opened == 2


async def test_a_broken_session_is_replaced(listener: Listener) -> None:
    """A session that was closed by its borrower, or by the peer while idle, is never lent again."""
    async with Pool(secret=SECRET) as pool:
        async with pool.session(listener.address) as first:
            await first.close()
        async with pool.session(listener.address) as second:
            assert second is not first
        for served in listener.sessions:
            await served.close()
        await until(lambda: second.closed)
        async with pool.session(listener.address) as third:
            assert await third.call("echo", b"on") == b"on"
        assert pool.stats().failed == 2
        assert pool.stats().opened == 3
        assert pool.stats().connections == 1


async def test_a_session_that_was_idle_for_long_is_asked_first(listener: Listener) -> None:
    """If the peer does not answer a ping in time, the session is given up although it seems connected."""
    async with Pool(secret=SECRET, check_after_s=0.0, check_timeout_s=0.1, config=HASTY) as pool:
        async with pool.session(listener.address) as first:
            pass
        async with pool.session(listener.address) as again:
            assert again is first
        first._native.detach()  # nothing arrives from now on, and neither end has detected it
        assert first.state is SessionState.CONNECTED
        async with pool.session(listener.address) as second:
            assert second is not first
            assert await second.call("echo", b"on") == b"on"
        assert pool.stats().failed == 1
        assert pool.stats().reused == 1


async def test_what_cannot_be_opened_takes_no_place(listener: Listener) -> None:
    """connect() raises its error, and the connection slot is free again."""
    async with Pool(max_connections=1, secret=SECRET) as pool:
        for _ in range(3):
            with pytest.raises(errors.AddressError):
                async with pool.session("127.0.0.1:1"):
                    pytest.fail("nobody is there")
        async with pool.session(listener.address, timeout_s=10) as session:
            assert await session.call("echo", b"on") == b"on"
        assert pool.stats().connections == 1


async def test_closing_it_closes_everything(listener: Listener) -> None:
    """Lent and idle sessions are closed; waiting tasks get an error, and no further session is lent."""
    pool = Pool(max_connections=2, secret=SECRET)
    async with pool.session(listener.address) as lent:
        async with pool.session(listener.address) as idle:
            waiting = asyncio.ensure_future(pool.session(listener.address).__aenter__())
            await settled()
            await pool.close()
            with pytest.raises(errors.ClosedError):
                await waiting
        assert lent.closed
        assert idle.closed
    await pool.close()
    with pytest.raises(errors.ClosedError):
        async with pool.session(listener.address):
            pytest.fail("the pool is closed")
    await settled()
    assert pool.stats().lent == 0
    assert "closed" in repr(pool)


async def test_the_configuration_bounds_it(listener: Listener) -> None:
    """max_connections, idle_timeout_s and the secret apply unless an argument overrides them."""
    text = f'[session]\nsecret = "{SECRET}"\nidle_timeout_s = 7\n[network.rdma]\nmax_connections = 3\n'
    async with Pool(config=loads(text)) as pool:
        assert (pool.max_connections, pool.idle_timeout_s) == (3, 7)
        async with pool.session(listener.address) as session:
            assert await session.call("echo", b"on") == b"on"
    assert Pool(config=loads(text), idle_timeout_s=0).idle_timeout_s == 0
    with pytest.raises(errors.StateError, match="max_connections"):
        Pool(max_connections=0)


async def test_a_seat_granted_to_a_cancelled_task_is_passed_on() -> None:
    """This holds for either order of the grant and the cancellation."""
    limiter = FairLimiter(1)
    assert await limiter.acquire(None)
    first, second = (asyncio.ensure_future(limiter.acquire(None)) for _ in range(2))
    await settled()
    limiter.release()
    first.cancel()
    await settled()
    assert first.cancelled()
    assert second.result()
    limiter.release()
    assert await limiter.acquire(0)
    assert not await limiter.acquire(0)
