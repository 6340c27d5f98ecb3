"""The control thread: one event loop per process that opens and maintains sessions.
Sessions are accepted and fail over even if the program's own loop is busy or absent."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Control:
    """The control loop of this process and its tasks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: set[asyncio.Task[object]] = set()


_control = _Control()


def control_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of the control thread, which starts at first use and runs until the process ends."""
    with _control.lock:
        if _control.loop is None:
            _control.loop = asyncio.new_event_loop()
            threading.Thread(target=_control.loop.run_forever, name="verbena-control", daemon=True).start()
        return _control.loop


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Schedules a coroutine on the control thread and returns its future. From any thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, control_loop())


async def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the control thread and awaits it here; cancelling here cancels it there."""
    if asyncio.get_running_loop() is _control.loop:
        return await coroutine
    return await asyncio.wrap_future(submit(coroutine))


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the control thread and blocks until it ends. Not from the control thread.
    An exception in the waiting thread, such as KeyboardInterrupt, cancels the coroutine."""
    future = submit(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def spawn(coroutine: Coroutine[Any, Any, object]) -> None:
    """Starts a coroutine as a task. Call it on the control thread; errors go to its exception handler."""
    task = asyncio.ensure_future(coroutine)
    _control.tasks.add(task)  # the loop holds tasks weakly
    task.add_done_callback(_control.tasks.discard)


def _forget_after_fork() -> None:
    _control.__init__()  # type: ignore[misc] # the thread stayed with the parent


os.register_at_fork(after_in_child=_forget_after_fork)
