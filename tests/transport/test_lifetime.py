"""Closing: who waits for it, and what interrupts it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import verbena
from verbena import _threads, transport
from verbena.transport import Session, Settings, control

SETTINGS = Settings(wires=("iwarp",), recv_buffer_pool_size=256)


@pytest.fixture
async def listener() -> AsyncIterator[transport.Listener]:
    async with verbena.listen("127.0.0.1:0", config=SETTINGS) as listening:
        yield listening


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Closes of sessions wait for this event."""
    event = threading.Event()

    async def wait(session: Session) -> None:
        await _threads.transfers.run(event.wait)

    monkeypatch.setattr(Session, "_send_close", wait)
    monkeypatch.setattr("verbena.transport.session._CLOSE_TIMEOUT_S", 60)
    return event


async def control_turn() -> None:
    """Lets the control thread do what it was asked to do before."""
    await control.run(asyncio.sleep(0))
    await control.run(asyncio.sleep(0))


async def test_every_closer_waits_for_the_end(listener: transport.Listener, held: threading.Event) -> None:
    """Tasks, threads, and the close of the node."""
    session = await verbena.connect(listener.address, config=SETTINGS)
    closes = [
        asyncio.ensure_future(session.close()),
        asyncio.ensure_future(session.close()),
        asyncio.ensure_future(asyncio.to_thread(session.sync.close)),
        asyncio.ensure_future(asyncio.to_thread(session.node.close)),
    ]
    await asyncio.wait(closes, timeout=0.1)
    assert session.closed
    assert not any(close.done() for close in closes)
    held.set()
    await asyncio.gather(*closes)
    assert "closed" in repr(session.node)


async def test_a_cancelled_close_continues(listener: transport.Listener, held: threading.Event) -> None:
    session = await verbena.connect(listener.address, config=SETTINGS)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(session.close(), 0.05)
    held.set()
    await session.close()
    assert session.node.sessions == []


async def test_a_finaliser_on_the_control_thread_does_not_wait(
    listener: transport.Listener, held: threading.Event
) -> None:
    """The collector may run there: close() begins the close, and other blocking operations are an error."""
    session = await verbena.connect(listener.address, config=SETTINGS)

    async def finalise() -> None:
        session.sync.close()
        with pytest.raises(RuntimeError, match="control thread"):
            verbena.sync.connect(listener.address, config=SETTINGS)

    await control.run(finalise())
    await control_turn()
    assert session.closed
    held.set()
    await session.close()


async def test_a_finaliser_in_a_thread_that_closes_does_not_wait_for_the_others(
    listener: transport.Listener, held: threading.Event
) -> None:
    """Otherwise as many of them as there are threads would wait for each other."""
    sessions = await asyncio.gather(*(verbena.connect(listener.address, config=SETTINGS) for _ in range(40)))
    closes = [_threads.workers.run(session.sync.close) for session in sessions]
    await asyncio.wait_for(asyncio.gather(*closes), 30)
    held.set()
    await asyncio.gather(*(session.close() for session in sessions))
    assert sessions[0].node.sessions == []


async def test_threads_close_everything_at_once() -> None:
    """A listener, its node, its sessions and their node, each in several threads."""
    with ThreadPoolExecutor(32) as threads:
        listener = await asyncio.to_thread(verbena.sync.listen, "127.0.0.1:0", config=SETTINGS)
        sessions = list(
            threads.map(lambda _: verbena.sync.connect(listener.address, config=SETTINGS), range(16))
        )
        everything = [listener, listener.node, sessions[0].node, *sessions, *listener.sessions]
        await asyncio.wait_for(
            asyncio.to_thread(lambda: list(threads.map(lambda one: one.close(), 2 * everything))), 30
        )
    assert listener.node.sessions == sessions[0].node.sessions == []
    assert all(session.closed for session in sessions)
