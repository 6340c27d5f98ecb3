"""A session on a lesser wire returns to the better one without a gap between links; dials that take too long
are cancelled when the session's time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

import verbena
from verbena.errors import DeniedError, setup_error
from verbena.transport import Listener, Request, SessionState, Settings
from verbena.transport.failover import dialer as dialing
from verbena.transport.failover import links
from verbena.verbs import Access

SECRET = b"correct horse battery staple"
HASTY = Settings(
    secret=SECRET,
    recv_buffer_pool_size=256,
    retry_delay_ms=20,
    connection_retries=0,
    upgrade_delay_ms=50,
    upgrade_delay_max_ms=100,
)


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    def echo(request: Request) -> bytes:
        return request.payload

    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=HASTY) as listening:
        yield listening


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


async def test_the_present_link_goes_on_until_the_better_one_has_taken_over(listener: Listener) -> None:
    """Under every kind of load, neither end is ever without a link, and nothing is lost or repeated."""
    async with verbena.connect(listener.address, config=HASTY) as session:
        (served,) = listener.sessions
        region = listener.node.allocate(1 << 20, access=Access.ALL)
        counter = listener.node.allocate(8, access=Access.ALL)
        session.break_link(rest_s=0.5)
        await until(lambda: session.wire == "iwarp" and served.wire == "iwarp")
        seen: list[tuple[SessionState, str | None]] = []
        for end in (session, served):
            end._watchers.add(lambda state, end=end: seen.append((state, end.wire)))
        additions = 0
        while session.wire != "shm":
            data = bytes([additions % 256]) * (1 << 20)
            answers = await asyncio.gather(
                *(session.call("echo", bytes([number])) for number in range(50)),
                session.write(region.remote, data),
                session.fetch_add(counter.remote, 1),
            )
            additions += 1
            assert answers[:50] == [bytes([number]) for number in range(50)]
            assert bytes(region) == data
        assert await session.fetch_add(counter.remote, 0) == additions
        await until(lambda: served.wire == "shm")
        assert seen == [(SessionState.CONNECTED, "shm")] * 2
        assert session._native.links == served._native.links == 3


async def test_no_access_is_refused_because_a_link_is_replaced(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends what it lent on the former link while the client still uses that link: the client asks
    again on the new one, instead of reporting a refusal. A revoked region is refused there."""
    async with verbena.connect(listener.address, config=HASTY) as session:
        change_over, close = links._change_over, links.LiveLink.close

        async def late_change_over(changing: Any, prepared: Any) -> None:
            await asyncio.sleep(0.2 if changing is session else 0)
            await change_over(changing, prepared)

        async def late_close(link: links.LiveLink) -> None:
            await asyncio.sleep(0.4 if link.wire.name == "iwarp" else 0)
            await close(link)

        monkeypatch.setattr(links, "_change_over", late_change_over)
        monkeypatch.setattr(links.LiveLink, "close", late_close)
        region = listener.node.allocate(4000, access=Access.ALL)
        remote = region.remote
        session.break_link(rest_s=0.3)
        await until(lambda: session.wire == "iwarp")
        while session.wire != "shm":
            assert await session.read(remote) == bytes(4000)
        region.close()
        with pytest.raises(DeniedError):
            await session.read(remote)


@pytest.mark.parametrize("late", [False, True], ids=["dial", "change-over"])
async def test_a_better_wire_that_fails_costs_nothing_unless_it_fails_at_the_last_moment(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """If the better wire answers the probe but does not connect, the present link is not affected. If it
    breaks after both ends have closed the former link, the session has no link and dials again."""
    failures = 0

    async def fail(*args: Any, **more: Any) -> Any:
        nonlocal failures
        failures += 1
        if late:
            await args[0]._drop_now()
        raise setup_error("connect_timeout", operation="dial")

    async def dial(session: Any, wire: Any, *rest: Any) -> Any:
        return await (fail if wire.name == "shm" else dial_link)(session, wire, *rest)

    dial_link = links.dial_link
    async with verbena.connect(listener.address, config=HASTY) as session:
        session.break_link(rest_s=0.2)
        await until(lambda: session.wire == "iwarp")
        link, states = session._link, []
        session._watchers.add(states.append)
        if late:
            real, first = links._change_over, True

            async def change_over(*args: Any) -> None:
                nonlocal first
                first, now = False, first
                await (fail if now else real)(*args)

            monkeypatch.setattr(links, "_change_over", change_over)
            await until(lambda: session.wire == "shm")
            assert SessionState.DISCONNECTED in states
        else:
            monkeypatch.setattr(dialing, "dial_link", dial)
            await until(lambda: failures == 3)
            assert session._link is link
            assert states == []
        assert await session.call("echo", b"on") == b"on"


async def test_a_dial_that_hangs_ends_with_the_sessions_time(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dial ends with the session's time to resume, although connecting might take an hour."""
    patient = replace(HASTY, connection_timeout_ms=3_600_000, resume_timeout_s=0.3)
    async with verbena.listen("127.0.0.1:0", config=patient) as other:
        session = await verbena.connect(other.address, config=patient)

        async def hang(*args: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(dialing, "dial_link", hang)
        session.break_link()
        await until(lambda: session.state is SessionState.FAILED)
        assert session._failure is not None
        assert session._failure.code == "resume_timeout"
        await session.close()


async def test_a_link_that_was_closed_in_order_is_no_error_of_the_wire(listener: Listener) -> None:
    """An orderly disconnect is not counted as a failed completion of the wire, and the session resumes."""
    async with verbena.connect(listener.address, config=HASTY) as session:
        (served,) = listener.sessions
        await until(lambda: session._link is not None and served._link is not None)
        link = served._link
        assert link is not None
        link.connection.disconnect()
        await until(lambda: session._native.links == 2 and session.state is SessionState.CONNECTED)
        assert await session.call("echo", b"on") == b"on"
        for end in (session, served):
            figures = end.metrics()["shm"]
            assert (figures["retry_exceeded"], figures["completion_errors"]) == (0, 0)
