"""Daemon threads that run blocking work: closes, transfers for event loops, handlers of blocking listeners.
Unlike those of an executor, they never delay the end of the process, and accept work until then.
Depends on nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[], object]


class Threads:
    """Starts a thread when work arrives and none is idle, up to `limit`. Idle threads wait for more work."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Begins without threads; a forked child has none."""
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._lock = threading.RLock()  # a finaliser may submit work while the collector runs below
        self._running = 0
        self._pending = 0  # work that is queued or running

    def submit(self, work: Work) -> None:
        """Runs `work` in a thread, in the order of submission. It must not raise."""
        with self._lock:
            self._pending += 1
            starts = self._pending > self._running and self._running < self._limit
            self._running += starts
        self._queue.put(work)
        if starts:
            self._start()

    async def run(self, work: Callable[..., T], /, *arguments: Any, **keywords: Any) -> T:
        """Runs `work` in a thread and awaits its result. If that is cancelled, the work continues."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work(*arguments, **keywords)
            except BaseException as error:
                post(loop, fail, ended, error)
            else:
                post(loop, finish, ended, result)

        self.submit(run)
        return await ended

    def is_current(self) -> bool:
        """Returns whether it is called in one of these threads."""
        return threading.current_thread().name == self._name

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, args=(self._queue,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit of the system; or main has returned, when Python 3.12 starts no thread
            with self._lock:
                self._running -= 1
                is_alone = self._running == 0
            if is_alone:
                self._run_one(self._queue.get())

    def _run(self, queue: SimpleQueue[Work]) -> None:
        while True:
            self._run_one(queue.get())

    def _run_one(self, work: Work) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._pending -= 1


def post(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any) -> None:
    """Calls `callback` on the loop, unless that was closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def finish(future: asyncio.Future[T], result: T) -> None:
    """Sets the result, unless the future was cancelled."""
    if not future.done():
        future.set_result(result)


def fail(future: asyncio.Future[T], error: BaseException) -> None:
    """Sets the exception, unless the future was cancelled."""
    if not future.done():
        future.set_exception(error)


# Work that waits for nothing but the system, such as closing. It never waits for other work of these threads.
workers = Threads("verbena-worker", 32)
transfers = Threads("verbena-transfer", 32)  # work that waits for a peer
handlers = Threads("verbena-handler", 64)
