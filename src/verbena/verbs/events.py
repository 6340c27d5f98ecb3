"""Delivers completions to asyncio futures: one pair of readers per completion queue and loop.
An awaited operation is watched: the native router keeps its completion until drain() returns it."""

# No wake-up is lost: watch() and expect_event() arm the queue before the state is checked once more, and
# drain() arms it again while operations are watched.

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from verbena import _native
from verbena._native import WorkCompletion
from verbena.errors import ClosedError

ResultT = TypeVar("ResultT")


class CompletionEvents:
    """The futures that wait for one completion queue, in one or several event loops."""

    def __init__(self, native: _native.CompletionQueue) -> None:
        self._native = native
        self._operations: dict[int, asyncio.Future[WorkCompletion]] = {}
        self._waiters: list[asyncio.Future[None]] = []
        # Duplicates of the queue's descriptors per loop: the queue may close while a loop still polls them.
        self._readers: dict[asyncio.AbstractEventLoop, tuple[int, int]] = {}

    async def completion(self, token: int, keep: object) -> WorkCompletion:
        """Waits for the completion of a started operation and returns it. If the wait is cancelled, the
        operation continues on the wire, and `keep` is referenced until it ends."""
        loop = asyncio.get_running_loop()
        if loop not in self._readers:
            self._attach(loop)
        future: asyncio.Future[WorkCompletion] = loop.create_future()
        self._operations[token] = future
        try:
            finished = self._native.watch(token)
            if finished is not None:
                del self._operations[token]
                return finished
            return await future
        finally:
            if self._operations.pop(token, None) is not None:
                self._native.abandon(token, keep)

    async def until(
        self, attempt: Callable[[], ResultT], timeout_s: float | None = None, *, every_s: float | None = None
    ) -> ResultT | None:
        """Calls `attempt` after every event until its result is true, and returns it; None after `timeout_s`.
        With `every_s` also at this interval, for changes that cause no completion."""
        loop = asyncio.get_running_loop()
        if loop not in self._readers:
            self._attach(loop)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append(future)
            self._native.expect_event()
            if result := attempt():
                return result
            pauses = [every_s] if every_s is not None else []
            if deadline is not None:
                pauses.append(deadline - loop.time())
            timer = loop.call_later(min(pauses), _resolve, future, None) if pauses else None
            try:
                await future
            finally:
                if timer is not None:
                    timer.cancel()
            if deadline is not None and loop.time() >= deadline:
                return attempt() or None

    def close(self) -> None:
        """Delivers the remaining completions, wakes all waiting tasks and removes the readers from all loops.
        Close the queue afterwards."""
        readers, self._readers = self._readers, {}
        try:
            self._deliver(None)
        except ClosedError:
            return  # in a forked child: the loops and the queue belong to the parent
        for loop, descriptors in readers.items():
            _call_in(loop, _detach, loop, descriptors)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        for other in [other for other in self._readers if other.is_closed()]:
            _detach(other, self._readers.pop(other))
        descriptors = (os.dup(self._native.fileno()), os.dup(self._native.wakeup_fileno()))
        self._readers[loop] = descriptors
        for descriptor in descriptors:
            loop.add_reader(descriptor, self._deliver, loop)

    def _deliver(self, running_loop: asyncio.AbstractEventLoop | None) -> None:
        for completion in self._native.drain():
            future = self._operations.pop(completion.wr_id, None)
            if future is not None:
                _resolve_in(running_loop, future, completion)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _resolve_in(running_loop, waiter, None)


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _resolve_in(
    running_loop: asyncio.AbstractEventLoop | None, future: asyncio.Future[Any], value: object
) -> None:
    loop = future.get_loop()
    if loop is running_loop:
        _resolve(future, value)
    else:
        _call_in(loop, _resolve, future, value)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Calls the function now if `loop` is running in this thread or is closed; otherwise schedules it
    there."""
    if loop.is_closed() or loop is asyncio._get_running_loop():
        function(*arguments)
    else:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop was closed after the check
            function(*arguments)


def _detach(loop: asyncio.AbstractEventLoop, descriptors: tuple[int, int]) -> None:
    for descriptor in descriptors:
        if not loop.is_closed():
            loop.remove_reader(descriptor)
        os.close(descriptor)
