"""A bounded queue of batches from the event loop to worker threads: processed in order, by one worker at a
time. Several batches may wait, so that neither side idles while the other is not scheduled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

AHEAD = 4 << 20
"""The default number of bytes that may wait."""
TURN = 8
"""The number of batches after which a worker yields to other work of its pool."""


class Feed:
    """Runs `take(offset, pieces)` on a worker for each batch, and `progress()` on the loop afterwards."""

    def __init__(
        self,
        workers: Executor,
        take: Callable[[int, Sequence[Any]], None],
        progress: Callable[[], None],
    ) -> None:
        self._workers = workers
        self._take = take
        self._progress = progress
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Sequence[Any], int]] = deque()
        self._bytes = 0
        self._busy = False
        self._error: BaseException | None = None
        self._at_end: Callable[[], None] | None = None
        self._waiters: list[asyncio.Future[None]] = []  # used on the loop only
        self._loop: asyncio.AbstractEventLoop | None = None

    async def put(self, offset: int, pieces: Sequence[Any], length: int, ahead: int = AHEAD) -> None:
        """Queues a batch; waits while more than `ahead` bytes are queued. The caller must not change the
        pieces until they are processed. Raises the error of an earlier batch, once."""
        self._raise()
        self._loop = asyncio.get_running_loop()
        with self._lock:
            self._waiting.append((offset, pieces, length))
            self._bytes += length
            begin, self._busy = not self._busy, True
        if begin:
            self._workers.submit(self._work)
        while self._bytes > ahead:
            await self._change()
        self._raise()

    async def settle(self) -> None:
        """Waits until the queue is empty and no worker runs. Raises as put() does."""
        while self._busy:
            await self._change()
        self._raise()

    def when_idle(self, work: Callable[[], None]) -> None:
        """Runs `work` now if the queue is idle, else on the worker when it becomes idle."""
        with self._lock:
            if self._busy:
                self._at_end = work
                return
        work()

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        # Registered before the check, so that a change between the two still wakes this waiter.
        if self._busy:
            await waiter
        else:
            self._waiters.remove(waiter)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _changed(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._progress()

    # The methods below run on a worker.

    def _work(self) -> None:
        for _ in range(TURN):
            with self._lock:
                if not self._waiting:
                    break
                offset, pieces, length = self._waiting.popleft()
            try:
                self._take(offset, pieces)
            except BaseException as error:
                with self._lock:
                    self._error = self._error or error
                    self._waiting.clear()
                    self._bytes = length
            del pieces
            with self._lock:
                self._bytes -= length
            self._notify_loop()
        with self._lock:
            self._busy = bool(self._waiting)
            again, at_end = self._busy, None if self._busy else self._at_end
        if again:
            try:
                self._workers.submit(self._work)
            except RuntimeError:  # the pool is shutting down: finish what is queued here
                self._work()
            return
        if at_end is not None:
            at_end()
        self._notify_loop()

    def _notify_loop(self) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(self._changed)
