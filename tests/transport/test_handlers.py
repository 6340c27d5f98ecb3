"""Handlers in Python: each behaves as if it ran in its own task, although most do not."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import verbena
from verbena import errors
from verbena.transport import Request, Session, Settings

Serve = Callable[[Callable[[Request], Awaitable[bytes | None]]], Awaitable[Session]]
WORKERS = "verbena handlers"


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A session whose peer answers "ask" with the given handler."""
    opened: list[Session | verbena.transport.Listener] = []

    async def start(handler: Callable[[Request], Awaitable[bytes | None]]) -> Session:
        listener = await verbena.listen("127.0.0.1:0", handlers={"ask": handler}, config=Settings())
        session = await verbena.connect(listener.address, wire="shm", config=Settings())
        opened.extend((session, listener))
        return session

    yield start
    for end in opened:
        await end.close()


async def test_a_handler_runs_in_a_task(serve: Serve) -> None:
    """This includes handlers that never wait, because time limits and task groups need a task."""

    async def handler(request: Request) -> bytes:
        assert asyncio.current_task() is not None
        return await asyncio.wait_for(nothing(request.payload), 10)

    async def nothing(payload: bytes) -> bytes:
        return payload

    session = await serve(handler)
    for number in range(10):
        assert await session.call("ask", b"%d" % number) == b"%d" % number


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_does_not_see_what_another_left_in_the_context(serve: Serve, waits: bool) -> None:
    left: contextvars.ContextVar[bytes] = contextvars.ContextVar("left", default=b"nothing")

    async def handler(request: Request) -> bytes:
        found = left.get()
        if waits:
            await asyncio.sleep(0)
        left.set(request.payload)
        return found

    session = await serve(handler)
    answers = [await session.call("ask", b"something") for _ in range(10)]
    answers += await asyncio.gather(*(session.call("ask", b"something") for _ in range(100)))
    assert set(answers) == {b"nothing"}


async def test_more_handlers_wait_than_workers_are_kept(serve: Serve) -> None:
    waiting = 0
    release = asyncio.Event()

    async def handler(request: Request) -> None:
        nonlocal waiting
        waiting += 1
        await release.wait()
        waiting -= 1

    session = await serve(handler)
    for _ in range(2):
        calls = [asyncio.ensure_future(session.call("ask")) for _ in range(300)]
        await until(lambda: waiting == 300)
        release.set()
        assert await asyncio.gather(*calls) == [b""] * len(calls)
        release.clear()


async def test_only_the_handler_of_the_cancelled_call_is_cancelled(serve: Serve) -> None:
    running: set[bytes] = set()
    cancelled: set[bytes] = set()

    async def handler(request: Request) -> bytes:
        running.add(request.payload)
        try:
            await asyncio.sleep(60 if request.payload.startswith(b"long") else 0.02)
        except asyncio.CancelledError:
            cancelled.add(request.payload)
            raise
        finally:
            running.discard(request.payload)
        return b"done"

    session = await serve(handler)
    for _ in range(5):
        cancelled.clear()
        long = {b"long %d" % i: asyncio.ensure_future(session.call("ask", b"long %d" % i)) for i in range(5)}
        short = [asyncio.ensure_future(session.call("ask", b"short %d" % i)) for i in range(20)]
        await until(lambda: running.issuperset(b"long %d" % i for i in range(5)))
        for call in long.values():
            call.cancel()
        assert await asyncio.gather(*short) == [b"done"] * len(short)
        await until(lambda: len(cancelled) == 5)
        assert cancelled == set(long)
    assert await session.call("ask", b"short") == b"done"


async def test_a_handler_that_cancels_itself_is_a_failure_and_others_go_on(serve: Serve) -> None:
    async def handler(request: Request) -> bytes:
        if request.payload == b"cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return request.payload

    session = await serve(handler)
    for _ in range(5):
        with pytest.raises(errors.RemoteError, match="cancelled"):
            await session.call("ask", b"cancel")
        assert await session.call("ask", b"go on") == b"go on"


async def test_no_worker_is_left_behind(serve: Serve) -> None:
    async def handler(request: Request) -> bytes:
        return request.payload

    listener = await verbena.listen("127.0.0.1:0", handlers={"ask": handler}, config=Settings())
    async with verbena.connect(listener.address, config=Settings()) as session:
        await asyncio.gather(*(session.call("ask") for _ in range(100)))
    assert WORKERS in {task.get_name() for task in asyncio.all_tasks()}
    await listener.close()
    await until(lambda: WORKERS not in {task.get_name() for task in asyncio.all_tasks()})
