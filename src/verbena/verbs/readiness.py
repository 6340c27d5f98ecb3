"""Waits until a descriptor is readable, in an event loop or a thread."""

from __future__ import annotations

import asyncio
import os
import select
import time

from verbena._forks import process

SLICE_S = 0.05  # a blocked thread notices close() within this time


class Readiness:
    """Waits for one descriptor; close() ends all waits. A wait may end early: check the state, and wait
    again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = False

    async def wait(self, timeout_s: float | None = None) -> None:
        """Returns when the descriptor is readable, after `timeout_s`, or after close()."""
        if self._closed:
            return
        forks = process.forks
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        copy = os.dup(self._descriptor)  # a loop allows one reader per descriptor, but several tasks wait
        loop.add_reader(copy, wake, future)
        timer = None if timeout_s is None else loop.call_later(max(timeout_s, 0), wake, future)
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()
            if forks == process.forks:  # a child would remove it from the parent's loop as well
                loop.remove_reader(copy)
            os.close(copy)

    def wait_blocking(self, timeout_s: float | None = None) -> None:
        """As wait(), but blocks the thread."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._closed:
            left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
            if left < 0 or poll.poll(left * 1000):
                return

    def close(self) -> None:
        self._closed = True
        for future in list(self._waiting):
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake, future)


def wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
