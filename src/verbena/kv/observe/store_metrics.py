"""The text that a store adds to /metrics of its node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from verbena import _threads
from verbena.kv.observe.collect import collect, process_state
from verbena.kv.observe.engine_call import EngineCall
from verbena.kv.observe.snapshot import StoreSnapshot
from verbena.kv.observe.table import PROCESS_METRICS, STORE_METRICS
from verbena.transport.observe.metrics.prometheus import render

if TYPE_CHECKING:
    from verbena.kv.server.server import Server


class StoreMetrics:
    """Collects on the engine's thread, and renders on a thread that no client waits for. Scrapes at one time
    share what is collected."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._collect = EngineCall(server, partial(collect, server))

    async def __call__(self) -> str:
        """Returns the text. If the engine does not answer in time, it has the metrics of the process only."""
        now: StoreSnapshot | None = None
        if self._server.is_running:
            try:
                now = await self._collect()
            except TimeoutError:
                now = None
        return await _threads.workers.run(self._render, now)

    def _render(self, now: StoreSnapshot | None) -> str:
        text = render(PROCESS_METRICS, process_state(self._server, is_up=now is not None))
        return text if now is None else text + render(STORE_METRICS, now)
