"""A bounded number of seats, taken strictly in the order of asking: a latecomer overtakes nobody."""

from __future__ import annotations

import asyncio
from collections import deque


class Seats:
    """For one event loop. Each take() that returned True needs one give_back()."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for future in self._queue)

    async def take(self, timeout_s: float | None) -> bool:
        """Waits for a seat; False when the time is up."""
        if self._free and not self.waiting:
            self._free -= 1
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(granted)
        try:
            # Not wait_for(): it can lose a seat that is granted in the moment of the time-out.
            await asyncio.wait((granted,), timeout=timeout_s)
        except asyncio.CancelledError:
            if granted.done():
                self.give_back()
            raise
        finally:
            if granted in self._queue:
                self._queue.remove(granted)
        return granted.done()

    def give_back(self) -> None:
        """Passes the seat on to the first who waits."""
        while self._queue:
            granted = self._queue.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    def wake_all(self) -> None:
        """Seats everybody at once: for the end, when whoever comes is turned away afterwards."""
        while self._queue:
            granted = self._queue.popleft()
            if not granted.done():
                granted.set_result(None)
