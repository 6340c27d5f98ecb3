"""A session without room for another operation."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.security.memory import holds

import verbena
from verbena import errors
from verbena.transport import Settings

MAX_CALLS = 2
WAITING = 4 * MAX_CALLS  # messages that may wait for a link


async def test_a_timeout_covers_the_wait_for_room() -> None:
    """While the link is down, operations wait; one that finds no room ends at its timeout, and the others
    complete when the link is back."""
    settings = Settings(wires=("iwarp",), max_calls=MAX_CALLS)
    handlers = {"echo": lambda request: request.payload}
    async with (
        verbena.listen("127.0.0.1:0", handlers=handlers, config=settings) as listener,
        verbena.connect(listener.address, config=settings) as session,
    ):
        assert await session.call("echo", b"first") == b"first"
        session.break_link(rest_s=1.5)
        assert await holds(lambda: not session._native.has_link)
        waiting = [asyncio.ensure_future(session.call("echo", b"later")) for _ in range(WAITING)]
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(errors.TimedOutError, match="no room for it"):
            await session.call("echo", b"one too many", timeout_s=0.2)
        assert time.monotonic() - began < 1
        assert await asyncio.gather(*waiting) == [b"later"] * WAITING
