"""Batches on their way from the loop to a worker: taken in order, one worker at a time, several waiting at
once, so that neither side stands still while the other one is not scheduled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

AHEAD = 4 << 20
"""How many bytes may wait."""
TURN = 8
"""After how many batches a worker looks after others."""


class Feed:
    """`take(offset, pieces)` runs on a worker for each batch. `progress()` runs on the loop after each."""

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
        self._waiters: list[asyncio.Future[None]] = []  # the loop's alone
        self._loop: asyncio.AbstractEventLoop | None = None

    async def put(self, offset: int, pieces: Sequence[Any], length: int, ahead: int = AHEAD) -> None:
        """Hands a batch over; waits while more than `ahead` bytes are on their way. The pieces must stay as
        they are. Raises what a batch before it has failed of, once."""
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
        """Waits until nothing is on its way. Raises as put() does."""
        while self._busy:
            await self._change()
        self._raise()

    def when_idle(self, work: Callable[[], None]) -> None:
        """Runs it now, or after what is on its way."""
        with self._lock:
            if self._busy:
                self._at_end = work
                return
        work()

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        # Registered first: what has changed before this line is seen now, what changes after it wakes us.
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

    # On a worker.

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
            self._tell()
        with self._lock:
            self._busy = bool(self._waiting)
            again, at_end = self._busy, None if self._busy else self._at_end
        if again:
            try:
                self._workers.submit(self._work)
            except RuntimeError:  # the workers are being sent home: what was taken on is still done
                self._work()
            return
        if at_end is not None:
            at_end()
        self._tell()

    def _tell(self) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._changed)
