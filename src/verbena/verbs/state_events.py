"""Tells tasks that the state of a connection has changed. The connections of an event loop share one
descriptor."""

from __future__ import annotations

import asyncio
import itertools
import weakref

from verbena import _native
from verbena.verbs.readiness import wake


class StateEvents:
    """The connections that tasks of one event loop wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._native = _native.ConnectionEvents()
        self._tokens = itertools.count(1)
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        loop.add_reader(self._native.fileno(), self._deliver)

    @classmethod
    def of_running_loop(cls) -> StateEvents:
        loop = asyncio.get_running_loop()
        events = _of_loops.get(loop)
        if events is None:
            events = _of_loops[loop] = cls(loop)
        return events

    def add(self, connection: _native.Connection) -> int:
        """Returns the token for wait(). 0: only the connection's own descriptor reports changes."""
        token = next(self._tokens)
        return token if connection.report_to(self._native, token) else 0

    async def wait(self, token: int, timeout_s: float | None = None) -> None:
        """Returns after a change of the state that follows the call, or after `timeout_s`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        futures = self._waiting.setdefault(token, set())
        futures.add(future)
        timer = None if timeout_s is None else loop.call_later(max(timeout_s, 0), wake, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            futures.discard(future)
            if not futures:
                self._waiting.pop(token, None)

    def _deliver(self) -> None:
        for token in self._native.take():
            for future in self._waiting.pop(token, ()):
                wake(future)


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, StateEvents] = weakref.WeakKeyDictionary()
