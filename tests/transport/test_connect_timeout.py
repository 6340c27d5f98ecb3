"""connect(timeout_s=): the whole of connecting takes no longer, whichever step does not end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

import verbena
from verbena import errors
from verbena.transport import Settings
from verbena.transport.failover import dialer as dialing

SETTINGS = Settings(wires=("iwarp",), recv_buffer_pool_size=256)
SLACK_S = 2.0  # less than the 5 s that a step may take otherwise


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a peer that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def times_out(timeout_s: float, words: str = "") -> Iterator[None]:
    started = time.monotonic()
    with pytest.raises(errors.TimedOutError, match=rf"no session within {timeout_s} s{words}") as caught:
        yield
    assert caught.value.code == "connect_timeout"
    assert isinstance(caught.value, TimeoutError)
    assert timeout_s <= time.monotonic() - started < timeout_s + SLACK_S


async def test_a_silent_peer(silent: str) -> None:
    with times_out(0.1):
        await verbena.connect(silent, config=SETTINGS, timeout_s=0.1)
    with times_out(0.1):
        async with verbena.connect(silent, config=SETTINGS, timeout_s=0.1):
            pass


def test_a_silent_peer_in_the_blocking_form(silent: str) -> None:
    with times_out(0.1):
        verbena.sync.connect(silent, config=SETTINGS, timeout_s=0.1)


async def test_a_silent_peer_of_a_pool(silent: str) -> None:
    """The time for the session, not only for the place in the pool. The place is free afterwards."""
    async with verbena.Pool(config=SETTINGS, max_connections=1) as pool:
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(errors.TimedOutError) as caught:
                async with pool.session(silent, timeout_s=0.1):
                    pass
            assert caught.value.code == "connect_timeout"
            assert time.monotonic() - started < 0.1 + SLACK_S
        assert (pool.stats().connections, pool.stats().lent) == (0, 0)


@pytest.mark.parametrize("own_node", [True, False])
async def test_a_wire_that_does_not_come_up(monkeypatch: pytest.MonkeyPatch, own_node: bool) -> None:
    """The session is forgotten, and a node of the program can be used again."""
    original = dialing.dial_link

    async def never(*arguments: Any) -> Any:
        await asyncio.Event().wait()

    async with verbena.listen("127.0.0.1:0", handlers={}, config=SETTINGS) as listener:
        node = None if own_node else await asyncio.to_thread(verbena.Node, SETTINGS)
        monkeypatch.setattr(dialing, "dial_link", never)
        with times_out(0.1):
            await verbena.connect(listener.address, config=SETTINGS, node=node, timeout_s=0.1)
        monkeypatch.setattr(dialing, "dial_link", original)
        if node is not None:
            assert node.sessions == []
            async with verbena.connect(listener.address, node=node, timeout_s=30) as session:
                assert session.wire == "iwarp"
            await asyncio.to_thread(node.close)


async def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    async with (
        verbena.listen("127.0.0.1:0", handlers={}, config=SETTINGS) as listener,
        verbena.connect(listener.address, config=SETTINGS, timeout_s=30) as session,
    ):
        assert session.wire == "iwarp"
    with pytest.raises(errors.AddressError):
        await verbena.connect("127.0.0.1:1", config=SETTINGS, timeout_s=30)
