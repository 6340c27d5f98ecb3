"""Sessions that are idle cost their node nothing that others need."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import verbena
from verbena.transport import Settings

SESSIONS = 20
POOL = 64  # buffers: fewer than the requests of which each link signals one


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
async def test_idle_sessions_keep_no_send_buffers(wire: str) -> None:
    """Heartbeats are sent without a signal and must not hold buffers, or no session can send any longer."""
    settings = Settings(recv_buffer_pool_size=POOL, heartbeat_interval_ms=10, recv_queue_depth=8)
    async with contextlib.AsyncExitStack() as stack:
        listener = await stack.enter_async_context(
            verbena.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload}, config=settings)
        )
        sessions = [
            await stack.enter_async_context(verbena.connect(listener.address, wire=wire, config=settings))
            for _ in range(SESSIONS)
        ]
        await asyncio.sleep(0.5)  # dozens of heartbeats
        calls = (session.call("echo", b"still here", timeout_s=5) for session in sessions)
        assert await asyncio.gather(*calls) == [b"still here"] * SESSIONS
        assert [session.links for session in sessions] == [1] * SESSIONS
