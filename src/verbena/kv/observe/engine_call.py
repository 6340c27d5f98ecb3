"""Calls a function on the engine's thread from an event loop, with a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

T = TypeVar("T")

LIMIT_S = 0.9


class EngineCall(Generic[T]):
    """Never waits for the engine's lock: it posts the function to the engine's thread, and while that waits,
    posts no other, so that callers share one call."""

    def __init__(self, server: Server, function: Callable[[], T]) -> None:
        self._server = server
        self._function = function
        self._waiting: asyncio.Future[T] | None = None
        self._posted_s = 0.0

    @property
    def waiting_s(self) -> float:
        """How long the present call has waited."""
        return time.monotonic() - self._posted_s

    async def __call__(self) -> T:
        """Returns the function's result, or raises what it raised. TimeoutError: no answer in LIMIT_S."""
        answer = self._waiting
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._waiting = loop.create_future()
            answer.add_done_callback(self._answered)
            self._posted_s = time.monotonic()
            self._server.engine.post(lambda: self._run(loop, answer))
        try:
            return await asyncio.wait_for(asyncio.shield(answer), LIMIT_S)
        except asyncio.TimeoutError as error:
            raise TimeoutError from error  # another class in Python 3.10

    def _answered(self, answer: asyncio.Future[T]) -> None:
        self._waiting = None
        if not answer.cancelled():
            answer.exception()  # read, in case that all callers have given up

    def _run(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
        try:
            result = self._function()
        except Exception as error:
            loop.call_soon_threadsafe(_fail, answer, error)
        else:
            loop.call_soon_threadsafe(_set, answer, result)


def _set(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
