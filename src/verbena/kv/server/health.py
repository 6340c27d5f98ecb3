"""The health check of a store: a round trip to the engine's thread."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

_LIMIT_S = 0.9  # less than the limit of all checks, so that the reason is precise


class EngineCheck:
    """Returns why the engine does not serve; empty: it does. Never waits for the engine's lock: it posts a
    function to the engine's thread, and while that waits, posts no other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: asyncio.Future[str] | None = None
        self._posted_s = 0.0

    async def __call__(self) -> str:
        if not self._server.is_running:
            return "its thread has ended"
        answer = self._waiting
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._waiting = loop.create_future()
            answer.add_done_callback(self._answered)
            self._posted_s = time.monotonic()
            self._server.engine.post(lambda: loop.call_soon_threadsafe(_set, answer, self._refusal()))
        try:
            return await asyncio.wait_for(asyncio.shield(answer), _LIMIT_S)
        except (asyncio.TimeoutError, TimeoutError):
            return f"its thread has not answered for {time.monotonic() - self._posted_s:.1f} s"

    def _answered(self, answer: asyncio.Future[str]) -> None:
        self._waiting = None

    def _refusal(self) -> str:
        """On the engine's thread: the error of a disk that refuses writes. A replica refuses the writes of
        clients too, but is healthy."""
        refusal = self._server.engine.refusal
        return refusal if refusal.startswith("MISCONF") else ""


def _set(answer: asyncio.Future[str], reason: str) -> None:
    if not answer.done():
        answer.set_result(reason)
