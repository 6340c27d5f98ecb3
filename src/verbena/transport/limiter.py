"""A limit on concurrent users that is granted in the order of requests."""

from __future__ import annotations

import asyncio
from collections import deque


class FairLimiter:
    """For one event loop. Each acquire() that returned True needs one release()."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for future in self._queue)

    async def acquire(self, timeout_s: float | None) -> bool:
        """Waits for a place; False after `timeout_s`."""
        if self._free and not self.waiting:
            self._free -= 1
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(granted)
        try:
            # Not wait_for(): it can lose a place that is granted at the moment of the time-out.
            await asyncio.wait((granted,), timeout=timeout_s)
        except asyncio.CancelledError:
            if granted.done():
                self.release()
            raise
        finally:
            if granted in self._queue:
                self._queue.remove(granted)
        return granted.done()

    def release(self) -> None:
        """Frees a place, and grants it to the first waiter."""
        while self._queue:
            granted = self._queue.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    def wake_all(self) -> None:
        """Grants a place to every waiter, for close(): they then find the pool closed."""
        while self._queue:
            granted = self._queue.popleft()
            if not granted.done():
                granted.set_result(None)
