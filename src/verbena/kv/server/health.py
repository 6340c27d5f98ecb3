"""The health check of a store: a round trip to the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.kv.observe.engine_call import EngineCall

if TYPE_CHECKING:
    from verbena.kv.server.server import Server


class EngineCheck:
    """Returns why the engine does not serve; empty: it does. Never waits for the engine's lock. The limit of
    the call is less than that of all checks, so that the reason is precise."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._call = EngineCall(server, self._refusal)

    async def __call__(self) -> str:
        if not self._server.is_running:
            return "its thread has ended"
        try:
            return await self._call()
        except TimeoutError:
            return f"its thread has not answered for {self._call.waiting_s:.1f} s"

    def _refusal(self) -> str:
        """On the engine's thread: the error of a disk that refuses writes. A replica refuses the writes of
        clients too, but is healthy."""
        refusal = self._server.engine.refusal
        return refusal if refusal.startswith("MISCONF") else ""
