"""The nodes of sessions for which the program gave none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import verbena
from verbena import errors, transport
from verbena.transport import Settings, control, lifetime

SECRET = "correct horse battery staple"
SETTINGS = Settings(wires=("iwarp",), recv_buffer_pool_size=256)
OTHERS = Settings(wires=("iwarp",), recv_buffer_pool_size=128, devices={"ibv": "none"})


@pytest.fixture
def address() -> Iterator[str]:
    """Where a listener of another loop accepts sessions, and closes its own end of them."""
    with verbena.sync.listen("127.0.0.1:0", config=SETTINGS) as listener:
        yield listener.address


@pytest.fixture(autouse=True)
def _leaves_no_node_open() -> Iterator[None]:
    before = set(lifetime._lifetime.open)
    yield
    control.run_blocking(_until_closed(before))


async def _until_closed(before: set[lifetime.Endable]) -> None:
    deadline = asyncio.get_running_loop().time() + 10
    while lifetime._lifetime.open - before:
        assert asyncio.get_running_loop().time() < deadline, lifetime._lifetime.open - before
        await asyncio.sleep(0.005)


async def test_tasks_that_connect_at_once_share_one_node(address: str) -> None:
    """It is made once, and it is closed when the last session has been closed, not before."""
    sessions = await asyncio.gather(*(verbena.connect(address, config=SETTINGS) for _ in range(64)))
    node = sessions[0].node
    assert {session.node for session in sessions} == {node}
    assert len(node.sessions) == 64
    await asyncio.gather(*(session.close() for session in sessions[1:]))
    assert node.sessions == [sessions[0]]
    assert "closed" not in repr(node)
    await sessions[0].close()
    assert "closed" in repr(node)


def test_threads_share_one_node(address: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        sessions = list(threads.map(lambda _: verbena.sync.connect(address, config=SETTINGS), range(16)))
        assert len({session.node for session in sessions}) == 1
        list(threads.map(lambda session: session.close(), sessions))
    assert "closed" in repr(sessions[0].node)


async def test_settings_and_loops_have_their_own_nodes(address: str) -> None:
    """Equal settings mean one node; others, a loop, and the blocking form have another."""
    async with (
        verbena.connect(address, config=SETTINGS) as first,
        verbena.connect(address, config=Settings(wires=("iwarp",), recv_buffer_pool_size=256)) as equal,
        verbena.connect(address, config=OTHERS) as other,
    ):
        blocking = await asyncio.to_thread(verbena.sync.connect, address, config=SETTINGS)
        nodes = [first.node, equal.node, other.node, blocking.node]
        assert [node is first.node for node in nodes] == [True, True, False, False]
        assert other.node is not blocking.node
        await asyncio.to_thread(blocking.close)
        assert "closed" not in repr(first.node)


async def test_a_given_node_stays_open(address: str) -> None:
    with transport.Node(SETTINGS) as node:
        async with verbena.connect(address, node=node) as session:
            assert session.node is node
        assert "closed" not in repr(node)


async def test_a_node_that_the_program_closes_is_replaced(address: str) -> None:
    first = await verbena.connect(address, config=SETTINGS)
    await asyncio.to_thread(first.node.close)
    assert first.closed
    async with verbena.connect(address, config=SETTINGS) as second:
        assert second.node is not first.node
        await first.close()
        assert not second.closed


async def test_a_failed_connect_leaves_no_node(address: str) -> None:
    """Neither when nothing listens, nor when no wire works, for all that waited for the node."""
    with pytest.raises(errors.AddressError):
        await verbena.connect("127.0.0.1:1", config=SETTINGS)
    nowhere = Settings(wires=("no such wire",))
    outcomes = await asyncio.gather(
        *(verbena.connect(address, config=nowhere) for _ in range(4)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [errors.UnavailableError] * 4


async def test_a_cancelled_connect_leaves_nothing_open(address: str) -> None:
    """At whatever point it is cancelled: after each of the first iterations of this loop."""
    for turns in [*range(40), *range(40, 400, 20)]:
        connecting = asyncio.ensure_future(verbena.connect(address, config=SETTINGS))
        for _ in range(turns):
            await asyncio.sleep(0.0002)
        connecting.cancel()
        outcome = (await asyncio.gather(connecting, return_exceptions=True))[0]
        if isinstance(outcome, verbena.Session):
            await outcome.close()
        else:
            assert isinstance(outcome, asyncio.CancelledError)


def test_the_node_of_a_closed_loop_is_closed_at_the_next_connect(address: str) -> None:
    async def leave_open() -> verbena.Session:
        return await verbena.connect(address, config=SETTINGS)

    left = asyncio.run(leave_open())
    with verbena.sync.connect(address, config=SETTINGS) as session:
        control.run_blocking(_until_closed({session.node, *(lifetime._lifetime.open - {left.node})}))
        assert left.closed


async def test_loops_of_several_threads_connect_at_once(address: str) -> None:
    nodes: list[transport.Node] = []

    async def use() -> None:
        async with verbena.connect(address, config=SETTINGS) as session:
            nodes.append(session.node)

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert len(set(nodes)) == 8


async def test_a_session_has_the_secret_of_its_connect() -> None:
    """Also with a node that has another one or none; so has a listener."""
    with transport.Node(SETTINGS) as serving, transport.Node(SETTINGS) as dialling:
        async with verbena.listen("127.0.0.1:0", node=serving, secret=SECRET) as listener:
            async with verbena.connect(listener.address, node=dialling, secret=SECRET) as session:
                assert listener.sessions[0].principal.method == "secret"
                assert session.principal.method == "secret"
            with pytest.raises(errors.DeniedError):
                await verbena.connect(listener.address, node=dialling)
            with pytest.raises(errors.DeniedError):
                await verbena.connect(listener.address, node=dialling, secret=SECRET + "!")
