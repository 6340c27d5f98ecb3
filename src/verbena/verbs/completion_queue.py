"""Where work requests report how they ended."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from verbena import _native
from verbena._native import WorkCompletion
from verbena.verbs.events import CompletionEvents
from verbena.verbs.resource import Resource

if TYPE_CHECKING:
    from verbena.verbs.context import Context


class CompletionQueue(Resource):
    """Completions of raw requests, oldest first, by polling or by event. Those of awaited and blocking
    operations go to whoever waits for them and are never seen here."""

    __slots__ = ("_events", "_native", "context")

    def __init__(self, context: Context, native: _native.CompletionQueue) -> None:
        super().__init__()
        self.context = context
        self._native = native
        self._events = CompletionEvents(native)
        # A loop holds its readers; without this a queue that is dropped unclosed would stay with the loop.
        weakref.finalize(self, self._events.close).atexit = False

    @property
    def capacity(self) -> int:
        """How many completions it holds."""
        return self._native.capacity

    @property
    def overrun(self) -> bool:
        """Completions were lost because nobody polled in time; its queue pairs are in ERR."""
        return self._native.overrun

    @property
    def tracked(self) -> int:
        """How many awaited or blocking operations are under way."""
        return self._native.tracked

    def poll(self, max: int = 16) -> list[WorkCompletion]:
        """What has completed, at most `max` (and 256) of it; an empty list if nothing has."""
        return self._native.poll(max)

    async def wait(self, max: int = 16, *, timeout_s: float | None = None) -> list[WorkCompletion]:
        """poll(), but waits on the event loop until there is something. An empty list when the time is up."""
        found = self._native.poll(max)
        if found or timeout_s == 0:
            return found
        return await self._events.until(lambda: self._native.poll(max), timeout_s) or []

    def wait_blocking(
        self, max: int = 16, *, timeout_s: float | None = None, spin_us: int = 50
    ) -> list[WorkCompletion]:
        """poll(), but blocks until there is something: spins for `spin_us`, then sleeps.
        An empty list when the time is up."""
        return self._native.wait(max, -1.0 if timeout_s is None else timeout_s, spin_us)

    def arm(self, *, solicited_only: bool = False) -> None:
        """Makes fileno() readable at the next completion (or the next solicited or failed one), once.
        Poll once more after it: what came before rings no bell."""
        self._native.arm(solicited_only)

    def acknowledge(self) -> None:
        """Takes the event: fileno() is not readable any more until the queue is armed and rings again."""
        self._native.acknowledge()

    def fileno(self) -> int:
        """A descriptor for select, poll, epoll or asyncio."""
        return self._native.fileno()

    def _close_native(self) -> None:
        self._events.close()
        self._native.close()

    def __repr__(self) -> str:
        return f"<CompletionQueue {'closed' if self.closed else f'of {self.capacity}'}>"
