"""Completion queues: the results of work requests."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from verbena import _native
from verbena._forks import own_repr
from verbena._native import WorkCompletion
from verbena.verbs.events import CompletionEvents
from verbena.verbs.resource import Resource

if TYPE_CHECKING:
    from verbena.verbs.context import Context


class CompletionQueue(Resource):
    """Returns the completions of posted requests, oldest first, by polling or events. Completions of asyncio
    and blocking operations go to their callers and do not appear here."""

    __slots__ = ("_events", "_native", "context")

    def __init__(self, context: Context, native: _native.CompletionQueue) -> None:
        super().__init__()
        self.context = context
        self._native = native
        self._events = CompletionEvents(native)
        # Event loops reference their readers: without this, a queue dropped unclosed would leave its readers.
        weakref.finalize(self, self._events.close).atexit = False

    @property
    def capacity(self) -> int:
        """The maximum number of completions that it holds."""
        return self._native.capacity

    @property
    def overrun(self) -> bool:
        """Whether completions were lost because the queue was not polled in time; its queue pairs are in
        ERR."""
        return self._native.overrun

    @property
    def tracked(self) -> int:
        """The number of asyncio and blocking operations in progress."""
        return self._native.tracked

    def poll(self, max: int = 16) -> list[WorkCompletion]:
        """Returns up to `max` completions (at most 256); an empty list if there is none."""
        return self._native.poll(max)

    async def wait(self, max: int = 16, *, timeout_s: float | None = None) -> list[WorkCompletion]:
        """Waits until there are completions, then returns them like poll(); an empty list after
        `timeout_s`."""
        found = self._native.poll(max)
        if found or timeout_s == 0:
            return found
        return await self._events.until(lambda: self._native.poll(max), timeout_s) or []

    def wait_blocking(
        self, max: int = 16, *, timeout_s: float | None = None, spin_us: int = 50
    ) -> list[WorkCompletion]:
        """wait() for threads: spins for `spin_us`, then sleeps."""
        return self._native.wait(max, -1.0 if timeout_s is None else timeout_s, spin_us)

    def arm(self, *, solicited_only: bool = False) -> None:
        """Makes fileno() readable once, at the next completion (`solicited_only`: the next solicited or
        failed one). Poll again afterwards: completions from before arm() cause no event."""
        self._native.arm(solicited_only)

    def acknowledge(self) -> None:
        """Consumes the event: fileno() is no longer readable until the queue is armed and has another
        event."""
        self._native.acknowledge()

    def fileno(self) -> int:
        """Returns the descriptor of the events, for select, poll, epoll or asyncio."""
        return self._native.fileno()

    def _close_native(self) -> None:
        self._events.close()
        self._native.close()

    @own_repr
    def __repr__(self) -> str:
        return f"<CompletionQueue {'closed' if self.closed else f'of {self.capacity}'}>"
