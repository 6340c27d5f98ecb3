"""Long transfers of both forms: time limits, cancellation, progress; what connect() and listen() return."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

import verbena
from verbena import errors
from verbena.transport import Listener, RemoteRegion, Session, SessionState
from verbena.verbs import Access

SIZE = 8 << 20


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload}) as listening:
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
async def session(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[Session]:
    async with verbena.connect(listener.address, wire=request.param) as connected:
        yield connected


async def test_what_connect_returns_is_awaited_or_entered(listener: Listener) -> None:
    """`await`, `async with`, create_task(), gather() and wait_for() all accept it."""
    async with verbena.connect(listener.address) as session:
        assert await session.call("echo", b"entered") == b"entered"
    assert session.closed
    first = await verbena.connect(listener.address)
    second = await asyncio.create_task(verbena.connect(listener.address))
    (third,) = await asyncio.gather(verbena.connect(listener.address))
    fourth = await asyncio.wait_for(verbena.connect(listener.address), 20)
    for one in (first, second, third, fourth):
        async with one:
            assert await one.call("echo", b"awaited") == b"awaited"


def test_asyncio_run_takes_it() -> None:
    """listen() can be the main coroutine; its listener then belongs to a loop that has ended."""
    listener = asyncio.run(verbena.listen("127.0.0.1:0"))
    assert listener.address.startswith("127.0.0.1:")
    asyncio.run(listener.close())


async def test_a_failed_opening_raises_in_the_with_statement(listener: Listener) -> None:
    """Nothing is entered, so nothing is closed."""
    with pytest.raises(errors.UnavailableError, match="ibv was requested"):
        async with verbena.connect(listener.address, wire="ibv"):
            raise AssertionError


@pytest.mark.parametrize("size", [8, SIZE])
async def test_a_time_limit_holds_for_any_size(session: Session, listener: Listener, size: int) -> None:
    """While the session has no link, each operation ends at its time limit, and its buffer is free again."""
    region = listener.node.allocate(SIZE)
    remote, buffer = region.remote[:size], bytearray(size)
    await session.fetch_add(region.remote[:8], 1)
    session.break_link(rest_s=60.0)  # and there is no other wire
    assert await asyncio.to_thread(session.sync.wait_for, SessionState.DISCONNECTED, 10)
    operations = (
        lambda: session.read(remote, timeout_s=0.2),
        lambda: session.read_into(remote, buffer, timeout_s=0.2),
        lambda: session.write(remote, buffer, timeout_s=0.2),
        lambda: session.fetch_add(region.remote[:8], 1, timeout_s=0.2),
        lambda: session.compare_swap(region.remote[:8], 1, 2, timeout_s=0.2),
        lambda: asyncio.to_thread(session.sync.read, remote, timeout_s=0.2),
        lambda: asyncio.to_thread(session.sync.read_into, remote, buffer, timeout_s=0.2),
        lambda: asyncio.to_thread(session.sync.write, remote, buffer, timeout_s=0.2),
        lambda: asyncio.to_thread(session.sync.fetch_add, region.remote[:8], 1, timeout_s=0.2),
    )
    for operation in operations:
        began = time.monotonic()
        with pytest.raises(errors.TimedOutError):
            await operation()
        assert 0.15 < time.monotonic() - began < 5
    buffer.append(0)  # BufferError while it is in use


async def test_a_cancelled_transfer_leaves_its_buffer_alone(session: Session, listener: Listener) -> None:
    """After the cancellation the bytes no longer change, and the next transfer works."""
    region = listener.node.allocate(SIZE)
    memoryview(region)[:] = os.urandom(SIZE)
    session.break_link(rest_s=0.5)
    buffer = bytearray(SIZE)
    moving = asyncio.ensure_future(session.read_into(region.remote, buffer))
    await asyncio.sleep(0)
    moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    before = bytes(buffer)
    buffer.append(0)
    del buffer[-1]
    back = bytearray(SIZE)
    await session.read_into(region.remote, back)
    assert buffer == before
    assert back == bytes(region)


async def test_an_exception_in_progress_ends_the_transfer(session: Session, listener: Listener) -> None:
    """It is raised by the operation; `progress` runs on the loop that awaits it."""
    region = listener.node.allocate(SIZE)
    loop = asyncio.get_running_loop()

    def fail(done: int) -> None:
        assert asyncio.get_running_loop() is loop
        raise KeyError(done)

    for operation in (session.write, session.read_into):
        for size in (8, SIZE):
            with pytest.raises(KeyError):
                await operation(region.remote, bytearray(size), progress=fail)


async def test_wrong_arguments_are_named(session: Session, listener: Listener) -> None:
    """Both forms, short and long: the error names the operation, the argument and the remedy."""
    region = listener.node.allocate(SIZE)
    remote = region.remote
    for form in (session, session.sync):
        for size in (8, SIZE):
            gaps = memoryview(bytearray(2 * size))[::2]
            with pytest.raises(ValueError, match=r"write: buffer is not C-contiguous: .*ascontiguousarray"):
                await result(form.write, remote, gaps)
            with pytest.raises(ValueError, match=r"read_into: buffer is not C-contiguous: .*copy the result"):
                await result(form.read_into, remote, gaps)
            with pytest.raises(BufferError, match="read_into: buffer is read-only"):
                await result(form.read_into, remote, bytes(size))
        with pytest.raises(TypeError, match="write: buffer is str, not a bytes-like object"):
            await result(form.write, remote, "text")
        for name, more in (("read", ()), ("read_into", (bytearray(1),)), ("write", (b"x",))):
            with pytest.raises(TypeError, match=f"{name}: remote is Region, not a RemoteRegion"):
                await result(getattr(form, name), region, *more)
        with pytest.raises(errors.StateError, match="9 bytes in a region of 8"):
            await result(form.read_into, remote[:8], bytearray(9))


async def test_nothing_can_be_read_and_written(session: Session, listener: Listener) -> None:
    """A region of 0 bytes is a region: reading it gives b"", in both forms; another run's is refused."""
    region = listener.node.expose(bytearray(8), access=Access.ALL)
    remote = region.remote[4:4]
    stale = RemoteRegion(remote.addr, 0, remote.key, remote.epoch ^ 1)
    for form in (session, session.sync):
        assert await result(form.read, remote) == b""
        await result(form.read_into, remote, bytearray())
        await result(form.write, remote, b"")
        with pytest.raises(errors.DeniedError, match="an earlier run"):
            await result(form.read, stale)


async def result(operation: object, *arguments: object) -> object:
    """Runs an operation of either form."""
    if asyncio.iscoroutinefunction(operation):
        return await operation(*arguments)
    return await asyncio.to_thread(operation, *arguments)  # type: ignore[arg-type]
