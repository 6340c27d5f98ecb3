"""Completions as asyncio events: one reader per completion queue and loop, one native call per wake-up.

An operation that is awaited is *watched*: the native router holds its completion until drain() fetches it,
with all others that have finished. Nobody who waits is forgotten: watching and expecting arm the queue before
they look once more, and drain() arms again while anything is still watched.
"""

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
    """The futures that wait for one completion queue, in any number of event loops."""

    def __init__(self, native: _native.CompletionQueue) -> None:
        self._native = native
        self._operations: dict[int, asyncio.Future[WorkCompletion]] = {}
        self._onlookers: list[asyncio.Future[None]] = []
        # The queue's descriptors are duplicated per loop: the queue may close while a loop still has them.
        self._readers: dict[asyncio.AbstractEventLoop, tuple[int, int]] = {}

    async def completion(self, token: int, keep: object) -> WorkCompletion:
        """The completion of an operation that was started. If the wait is cancelled the operation goes on in
        the wire, and `keep` lives until it has ended."""
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
        """Calls `attempt` at every event until its result is true; None when the time is up.
        With `every_s` also now and then without one, for what no completion tells of."""
        loop = asyncio.get_running_loop()
        if loop not in self._readers:
            self._attach(loop)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            future: asyncio.Future[None] = loop.create_future()
            self._onlookers.append(future)
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
        """Wakes everybody, with what the queue still has, and leaves every loop. Close the queue after."""
        readers, self._readers = self._readers, {}
        try:
            self._deliver(None)
        except ClosedError:
            return  # in a forked child: the loops, like the queue, are its parent's
        for loop, descriptors in readers.items():
            _call_in(loop, _detach, loop, descriptors)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        for other in [other for other in self._readers if other.is_closed()]:
            _detach(other, self._readers.pop(other))
        descriptors = (os.dup(self._native.fileno()), os.dup(self._native.wakeup_fileno()))
        self._readers[loop] = descriptors
        for descriptor in descriptors:
            loop.add_reader(descriptor, self._deliver, loop)

    def _deliver(self, here: asyncio.AbstractEventLoop | None) -> None:
        for completion in self._native.drain():
            future = self._operations.pop(completion.wr_id, None)
            if future is not None:
                _resolve_in(here, future, completion)
        onlookers, self._onlookers = self._onlookers, []
        for onlooker in onlookers:
            _resolve_in(here, onlooker, None)


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _resolve_in(here: asyncio.AbstractEventLoop | None, future: asyncio.Future[Any], value: object) -> None:
    loop = future.get_loop()
    if loop is here:
        _resolve(future, value)
    else:
        _call_in(loop, _resolve, future, value)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Calls at once in this thread's own loop, or one that is closed; later in another."""
    if loop.is_closed() or loop is asyncio._get_running_loop():
        function(*arguments)
    else:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # it was closed since we looked
            function(*arguments)


def _detach(loop: asyncio.AbstractEventLoop, descriptors: tuple[int, int]) -> None:
    for descriptor in descriptors:
        if not loop.is_closed():
            loop.remove_reader(descriptor)
        os.close(descriptor)
