"""A peer on this host that is killed: every operation on its sessions ends at once with the right error.
Nothing else is taken for a killed peer."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.ports import free_port
from support.session_peer import SLOT_BYTES, Peer, settings
from support.stopped import stopped

import verbena
from verbena import errors
from verbena.transport import RemoteRegion, Request, Session, SessionState

pytestmark = pytest.mark.alone
# On an idle machine it takes about 10 ms; 50 ms more by quic, where no packet reports the end of a process.
LIMIT_S = 1.0

# One operation of each kind, in either form of a session, with a slot of the peer's region of its own.
OPERATIONS: dict[str, Callable[[Any, RemoteRegion], Any]] = {
    "call": lambda session, slot: session.call("echo", b"x"),
    "pending call": lambda session, slot: session.call("never"),
    "long call": lambda session, slot: session.call("echo", bytes(200_000)),
    "read": lambda session, slot: session.read(slot[:4096]),
    "long read": lambda session, slot: session.read(slot),
    "write": lambda session, slot: session.write(slot[:4096], bytes(4096)),
    "long write": lambda session, slot: session.write(slot, bytes(SLOT_BYTES)),
    "atomic": lambda session, slot: session.fetch_add(slot[:8], 1),
}


def some(count: int) -> list[tuple[str, int]]:
    """Kinds of operations, each with the number of its slot."""
    return list(zip(itertools.cycle(OPERATIONS), range(count), strict=False))


def slot_of(region: RemoteRegion, number: int) -> RemoteRegion:
    return region[number * SLOT_BYTES : (number + 1) * SLOT_BYTES]


@pytest.fixture(params=["shm", "iwarp", "quic"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "quic":
        for variable, value in request.getfixturevalue("tls_environment").items():
            monkeypatch.setenv(variable, value)
    return str(request.param)


def is_for_a_dead_peer(error: BaseException | None) -> bool:
    return (
        isinstance(error, errors.BrokenLinkError)
        and isinstance(error, ConnectionError)
        and error.code == "peer_died"
    )


async def until_it_fails(operation: Callable[[], Awaitable[object]]) -> tuple[errors.VerbenaError, float]:
    """Repeats the operation. Returns its error and when it came."""
    while True:
        try:
            await operation()
        except errors.VerbenaError as error:
            return error, time.monotonic()


async def until_state(session: Session, state: SessionState) -> None:
    async for reached in session.states():
        if reached is state:
            return


async def check_death(
    session: Session, region: RemoteRegion, pending: list[tuple[str, int]], kill: Callable[[], None]
) -> None:
    """Kills the peer at a random moment while these operations run. All of them fail soon, and later ones at
    once."""
    tasks = [
        asyncio.ensure_future(
            until_it_fails(functools.partial(OPERATIONS[kind], session, slot_of(region, slot)))
        )
        for kind, slot in pending
    ]
    await asyncio.sleep(random.uniform(0.01, 0.1))
    assert not any(task.done() for task in tasks)
    killed_at = time.monotonic()
    kill()
    for (kind, _), (error, at) in zip(pending, await asyncio.gather(*tasks), strict=True):
        assert is_for_a_dead_peer(error), (kind, error)
        assert at - killed_at < LIMIT_S, kind
    assert (session.state, session.wire) == (SessionState.FAILED, None)
    for kind, operation in OPERATIONS.items():
        started = time.monotonic()
        with pytest.raises(errors.BrokenLinkError) as later:
            await operation(session, slot_of(region, 0))
        assert is_for_a_dead_peer(later.value), kind
        assert time.monotonic() - started < LIMIT_S / 10, kind


async def test_a_single_pending_operation_fails(wire: str) -> None:
    for kind in ("pending call", "read", "long write", "atomic"):
        with Peer(wire) as peer:
            async with verbena.connect(peer.address, config=settings(wire)) as session:
                region = RemoteRegion.from_bytes(await session.call("region"))
                await check_death(session, region, [(kind, 0)], peer.kill)


async def test_many_pending_operations_fail(wire: str) -> None:
    with Peer(wire) as peer:
        async with verbena.connect(peer.address, config=settings(wire)) as session:
            region = RemoteRegion.from_bytes(await session.call("region"))
            await check_death(session, region, some(64), peer.kill)


@pytest.mark.parametrize("threads", [1, 64])
def test_blocked_threads_wake_with_the_error(wire: str, threads: int) -> None:
    """The blocking form: each thread is in an operation when the peer dies."""
    with Peer(wire) as peer, verbena.sync.connect(peer.address, config=settings(wire)) as session:
        region = RemoteRegion.from_bytes(session.call("region"))
        started = threading.Semaphore(0)

        def repeat(kind: str, slot: int) -> tuple[str, errors.VerbenaError, float]:
            started.release()
            while True:
                try:
                    OPERATIONS[kind](session, slot_of(region, slot))
                except errors.VerbenaError as error:
                    return kind, error, time.monotonic()

        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(repeat, *one) for one in some(threads)]
            for _ in running:
                started.acquire()
            time.sleep(random.uniform(0.01, 0.1))  # the moment of death is random
            killed_at = time.monotonic()
            peer.kill()
            for kind, error, at in [one.result() for one in running]:
                assert is_for_a_dead_peer(error), (kind, error)
                assert at - killed_at < LIMIT_S, kind
        for kind, operation in OPERATIONS.items():
            with pytest.raises(errors.BrokenLinkError) as later:
                operation(session, slot_of(region, 0))
            assert is_for_a_dead_peer(later.value), kind


class Listening:
    """A listener of this process, with what a client made of it."""

    def __init__(self) -> None:
        self.sessions: asyncio.Queue[Session] = asyncio.Queue()
        self.cancelled = asyncio.Event()  # the handler of the client's call
        self.listener: verbena.Listener

    async def never(self, request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@pytest.fixture
async def listening(wire: str) -> AsyncIterator[Listening]:
    made = Listening()
    async with verbena.listen(
        "127.0.0.1:0",
        handlers={"never": made.never},
        config=settings(wire),
        on_session=made.sessions.put_nowait,
    ) as made.listener:
        yield made


async def test_a_listener_ends_the_sessions_of_a_dead_client(wire: str, listening: Listening) -> None:
    """Its calls to the client fail, the client's calls to it are cancelled, and the session and its leases of
    memory end."""
    listener = listening.listener
    with Peer(wire, listener.address) as peer:
        session = await listening.sessions.get()
        region = RemoteRegion.from_bytes(await session.call("region"))
        lent = listener.node.allocate(4096, session=session)
        await check_death(session, region, some(64), peer.kill)
    await asyncio.wait_for(listening.cancelled.wait(), 10)
    assert listener.sessions == []
    assert session not in listener.node.sessions
    started = time.monotonic()
    lent.close()  # waits for accesses in progress
    assert time.monotonic() - started < LIMIT_S


async def test_an_idle_session_ends_too(wire: str) -> None:
    """Nothing has to be sent to notice it."""
    with Peer(wire) as peer:
        async with verbena.connect(peer.address, config=settings(wire)) as session:
            killed_at = time.monotonic()
            peer.kill()
            await until_state(session, SessionState.FAILED)
            assert time.monotonic() - killed_at < LIMIT_S
            with pytest.raises(errors.BrokenLinkError, match="the peer's process has ended"):
                await session.call("echo", b"")


async def test_a_child_of_the_peer_is_not_the_peer(wire: str) -> None:
    """A child that holds copies of the peer's sockets keeps its connections, but not the session."""
    with Peer(wire) as peer:
        async with verbena.connect(peer.address, config=settings(wire)) as session:
            child = int(await session.call("fork"))
            pending = asyncio.ensure_future(until_it_fails(lambda: session.call("never")))
            killed_at = time.monotonic()
            peer.kill()
            error, at = await pending
            assert is_for_a_dead_peer(error)
            assert at - killed_at < LIMIT_S
            os.kill(child, 0)  # it still runs


async def test_what_the_peer_sent_before_it_ended_is_received(wire: str) -> None:
    """A reply that was sent before the process ended is the result of the call, although the caller, which
    was stopped, learns of both at once."""
    with Peer(wire) as peer, Peer(wire, peer.address) as caller:
        caller.tell("call last_words")
        while await asyncio.to_thread(caller.read_line) != "called":
            pass
        with stopped(caller.pid):
            peer.tell("farewell")
            await asyncio.to_thread(peer.process.wait)
        assert await asyncio.to_thread(caller.read_line) == "b'good-bye'"


async def test_a_stopped_peer_is_not_dead(wire: str) -> None:
    """Neither a stopped process nor a link that breaks while it is stopped ends the session."""
    with Peer(wire) as peer:
        async with verbena.connect(peer.address, config=settings(wire)) as session:
            with stopped(peer.pid), pytest.raises(errors.TimedOutError):
                await session.call("echo", b"1", timeout_s=0.3)
            assert await session.call("echo", b"2") == b"2"
            with stopped(peer.pid):
                session.break_link()
                await until_state(session, SessionState.DISCONNECTED)
                pending = asyncio.ensure_future(session.call("echo", b"3"))
                with pytest.raises(errors.TimedOutError):
                    await session.call("echo", b"4", timeout_s=0.3)
                assert session.state in (SessionState.DISCONNECTED, SessionState.UNAVAILABLE)
            assert await pending == b"3"
            assert session.links >= 2


async def test_a_restarted_peer_gets_new_sessions(wire: str) -> None:
    """On the same port, at once: the old session stays failed."""
    port = free_port()
    with Peer(wire, port=port) as first:
        old = await verbena.connect(first.address, config=settings(wire))
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with Peer(wire, port=port) as second:
            with pytest.raises(errors.BrokenLinkError) as failure:
                await old.call("echo", b"1")
            assert is_for_a_dead_peer(failure.value)
            async with verbena.connect(second.address, config=settings(wire)) as session:
                assert await session.call("echo", b"2") == b"2"
        await old.close()
