"""A node that is closed while its sessions are being opened."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import verbena
from verbena import errors, transport
from verbena.transport import Settings, control
from verbena.transport.failover import dialer as dialing

SETTINGS = Settings(wires=("iwarp",), recv_buffer_pool_size=256)


def never(started: threading.Event) -> Callable[..., Any]:
    async def dial(*arguments: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    return dial


def broken(started: threading.Event) -> Callable[..., Any]:
    async def dial(*arguments: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("the wire was closed under it")

    return dial


@pytest.mark.parametrize("how", [never, broken])
async def test_a_pending_connect_fails_when_the_node_closes(
    how: Callable[[threading.Event], Callable[..., Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """connect() raises ClosedError at once. However the dial ends, no error is logged."""
    started = threading.Event()
    async with verbena.listen("127.0.0.1:0", config=SETTINGS) as listener:
        node = await asyncio.to_thread(transport.Node, SETTINGS)
        monkeypatch.setattr(dialing, "dial_link", how(started))
        connecting = asyncio.ensure_future(transport.connect(listener.address, node=node))
        await asyncio.to_thread(started.wait)
        await asyncio.to_thread(node.close)
        with pytest.raises(errors.ClosedError, match="the node was closed"):
            await connecting
    gc.collect()
    await asyncio.to_thread(time_passes_there)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def time_passes_there() -> None:
    """Runs one turn of the control loop of sessions, so that it has reported all ended tasks."""

    async def turn() -> None:
        gc.collect()

    control.run_blocking(turn())


async def test_a_session_is_not_begun_by_a_node_that_was_closed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer's answer to the hello arrives after the node was closed."""
    hello, answered, closed = dialing.Dialer._hello, threading.Event(), threading.Event()

    async def late(dialer: dialing.Dialer) -> Any:
        agreement = await hello(dialer)
        answered.set()
        await asyncio.to_thread(closed.wait)
        return agreement

    monkeypatch.setattr(dialing.Dialer, "_hello", late)
    async with verbena.listen("127.0.0.1:0", config=SETTINGS) as listener:
        node = await asyncio.to_thread(transport.Node, SETTINGS)
        connecting = asyncio.ensure_future(transport.connect(listener.address, node=node))
        await asyncio.to_thread(answered.wait)
        await asyncio.to_thread(node.close)
        closed.set()
        with pytest.raises(errors.ClosedError, match="the node was closed"):
            await connecting
    assert node.sessions == []
