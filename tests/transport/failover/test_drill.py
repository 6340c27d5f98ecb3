"""Drills: links that are broken on purpose, through the API and by peers with permission."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

import verbena
from verbena import errors
from verbena.transport import Listener, Request, Settings

SETTINGS = Settings(
    recv_buffer_pool_size=256,
    secret=b"correct horse battery staple",
    connection_retries=1,
    retry_delay_ms=20,
    upgrade_delay_ms=50,
    upgrade_delay_max_ms=200,
    allow_drill=True,
)


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=SETTINGS) as listening:
        yield listening


async def linked(listener: Listener, count: int = 1) -> None:
    """Waits for the links at the listener, which are attached a moment after those of the dialling end."""
    deadline = asyncio.get_running_loop().time() + 20
    while [one.wire is not None for one in listener.sessions] != [True] * count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


async def test_a_session_resumes_on_the_broken_wire_if_it_does_not_rest(listener):
    """Without a rest time, the session resumes on the wire that was broken."""
    async with verbena.connect(listener.address, config=SETTINGS) as session:
        await linked(listener)
        (drilled,) = await listener.node.drill("shm")
        assert (drilled.before, drilled.after, drilled.ok) == ("shm", "shm", True)
        assert drilled.session == f"{session.id:x}"
        assert 0 < drilled.resumed_s == drilled.back_s
        assert drilled.links == 1
        assert await session.call("echo", b"on") == b"on"


async def test_a_wire_that_rests_is_left_and_taken_again(listener):
    """At either end: the session steps down to the next wire, has one link there, and steps up after the rest
    time."""
    async with verbena.connect(listener.address, config=SETTINGS) as session:
        for node in (listener.node, session.node):
            await linked(listener)
            (drilled,) = await node.drill("shm", rest_s=2.0)
            assert (drilled.before, drilled.after, drilled.ok) == ("shm", "iwarp", True)
            assert drilled.resumed_s < 2.0 <= drilled.back_s
            # No good link is given up for a wire that rests.
            assert drilled.links == 2
            assert await session.call("echo", b"on") == b"on"


async def test_calls_run_once_through_a_drill(listener):
    """No call is lost or executed twice while the wire changes twice."""
    seen: list[bytes] = []

    def note(request: Request) -> bytes:
        seen.append(request.payload)
        return request.payload

    async with (
        await verbena.listen("127.0.0.1:0", handlers={"note": note}, config=SETTINGS) as noting,
        await verbena.connect(noting.address, config=SETTINGS) as session,
    ):
        await linked(noting)
        drilling = asyncio.ensure_future(noting.node.drill(rest_s=0.3))
        sent = 0
        while not drilling.done():
            answers = await asyncio.gather(
                *(session.call("note", b"%d" % number) for number in range(sent, sent + 20))
            )
            assert answers == [b"%d" % number for number in range(sent, sent + 20)]
            sent += 20
        assert (await drilling)[0].ok
    assert sorted(seen) == sorted(b"%d" % number for number in range(sent))


async def test_a_drill_of_an_unused_wire_returns_an_empty_report(listener):
    """A drill of a wire without sessions returns an empty report at once."""
    async with verbena.connect(listener.address, wire="iwarp", config=SETTINGS):
        assert await listener.node.drill("shm", rest_s=60) == []
        assert not listener.node._is_resting("shm")


async def test_a_session_that_does_not_return_is_reported_so(listener):
    """A session that does not resume is reported as failed within the given time."""
    async with verbena.connect(listener.address, wire="shm", config=SETTINGS):
        await linked(listener)
        (drilled,) = await listener.node.drill("shm", rest_s=30, wait_s=0.3)
        assert (drilled.resumed_s, drilled.after, drilled.ok) == (None, None, False)
        assert drilled.state == "disconnected"
        listener.node._resting.clear()


async def ask(asker: verbena.Session, /, **arguments: object) -> list[dict[str, object]]:
    answer = await asker.call("verbena.drill", json.dumps(arguments).encode(), timeout_s=30)
    found: list[dict[str, object]] = json.loads(answer)["sessions"]
    return found


async def test_an_authenticated_peer_can_request_a_drill(listener):
    """A peer with permission can drill all sessions except its own, or one that it names."""
    async with (
        await verbena.connect(listener.address, config=SETTINGS) as asker,
        await verbena.connect(listener.address, config=SETTINGS) as one,
        await verbena.connect(listener.address, config=SETTINGS) as other,
    ):
        await linked(listener, 3)
        drilled = await ask(asker)
        assert {entry["session"] for entry in drilled} == {f"{one.id:x}", f"{other.id:x}"}
        assert all(entry["ok"] for entry in drilled)
        (drilled_one,) = await ask(asker, session=f"{other.id:x}", wire="shm")
        assert drilled_one["session"] == f"{other.id:x}"
        for wrong in ({"session": "abc"}, {"wire": "smoke"}, {"rest_s": -1}, {"rest_s": "long"}, {"wire": 5}):
            with pytest.raises(errors.RemoteError):
                await ask(asker, **wrong)
        with pytest.raises(errors.RemoteError, match="JSON object"):
            await asker.call("verbena.drill", b"[]")
        async with asyncio.timeout(10):  # the listener may see a link return before the client does
            while not one.wire == other.wire == asker.wire == "shm":  # noqa: ASYNC110
                await asyncio.sleep(0.002)


async def test_a_refused_drill_names_the_configuration_key():
    """Drills by peers are off by default; the refusal names the configuration key."""
    settings = replace(SETTINGS, allow_drill=Settings().allow_drill)
    async with (
        await verbena.listen("127.0.0.1:0", config=settings) as listener,
        await verbena.connect(listener.address, config=settings) as session,
    ):
        with pytest.raises(errors.RemoteError, match=r"allow_drill = true in \[session\]"):
            await ask(session)


async def test_an_unauthenticated_peer_cannot_request_a_drill():
    """A node without a secret cannot authenticate its peers, so it refuses drills."""
    settings = replace(SETTINGS, secret=b"")
    async with (
        await verbena.listen("127.0.0.1:0", config=settings) as listener,
        await verbena.connect(listener.address, config=settings) as session,
    ):
        with pytest.raises(errors.RemoteError, match="cannot authenticate the peer"):
            await ask(session)


async def test_built_in_methods_cannot_be_replaced():
    """A program's handler cannot have the name of a built-in method, and built-in methods are not listed
    among the program's."""
    with pytest.raises(errors.VerbenaError, match=r"verbena\.status"):
        await verbena.listen("127.0.0.1:0", handlers={"verbena.status": echo}, config=SETTINGS)


async def test_the_status_lists_wires_sessions_and_latencies(listener):
    """The status contains the node, its wires, all sessions except the requesting one, and the latencies
    measured."""
    async with (
        await verbena.connect(listener.address, config=SETTINGS) as asker,
        await verbena.connect(listener.address, wire="iwarp", config=SETTINGS) as busy,
    ):
        await busy.call("echo", b"x" * 100)
        await linked(listener, 2)
        status = json.loads(await asker.call("verbena.status"))
        assert status["node"] == listener.node.name
        assert status["wires"]["shm"] == {"open": True}
        (shown,) = status["sessions"]
        assert (shown["id"], shown["wire"], shown["state"]) == (f"{busy.id:x}", "iwarp", "connected")
        assert shown["wires"]["iwarp"]["recv_bytes"] >= 100
        assert json.loads(await asker.call("verbena.status", b'{"most": 0}'))["sessions"] == []
        with pytest.raises(errors.RemoteError, match="number of sessions"):
            await asker.call("verbena.status", b'{"most": "all"}')
        with pytest.raises(errors.RemoteError, match="4096"):
            await asker.call("verbena.status", b" " * 5000)
