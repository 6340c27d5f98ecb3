"""The control thread: one event loop per process that opens and maintains sessions.
Sessions are accepted and fail over even if the program's own loop is busy or absent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from verbena import _forks, _threads
from verbena.errors import setup_error

T = TypeVar("T")
Undo = Callable[[T], Coroutine[Any, Any, None]]

ENDING = "the process is ending"
_STOP_S = 0.2  # for the tasks of the loop to end when it stops


class _Loop(asyncio.SelectorEventLoop):
    """Resolves names in daemon threads: those of an executor would delay the end of the process, and none can
    be made after main has returned."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        return self.create_task(_threads.transfers.run(func, *args))


class _Control:
    """The control loop of this process and its tasks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # the collector may run a finaliser of ours in a thread that holds it
        self.loop: asyncio.AbstractEventLoop | None = None
        self.selector: selectors.EpollSelector | None = None
        self.thread: threading.Thread | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_ending = False


_control = _Control()


def control_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of the control thread, which starts at first use and runs until the process ends.
    ClosedError afterwards."""
    with _control.lock:
        if _control.is_ending:
            raise setup_error("closed", operation="open", detail=ENDING)
        if _control.loop is None:
            _control.selector = selectors.EpollSelector()
            loop = _Loop(_control.selector)
            thread = threading.Thread(target=_run, args=(loop,), name="verbena-control", daemon=True)
            thread.start()
            _control.loop, _control.thread = loop, thread
        return _control.loop


def submit(coroutine: Coroutine[Any, Any, T], *, undo: Undo[T] | None = None) -> Future[T]:
    """Schedules a coroutine on the control thread and returns its future. From any thread. Cancelling the
    future cancels the coroutine, and passes its result to `undo` if it has one all the same."""
    future: Future[T] = Future()
    try:
        control_loop().call_soon_threadsafe(_start, coroutine, future, undo)
    except BaseException:
        coroutine.close()
        raise
    return future


def _start(coroutine: Coroutine[Any, Any, T], future: Future[T], undo: Undo[T] | None) -> None:
    loop, task = asyncio.get_running_loop(), spawn(coroutine)

    def finish(task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            if undo is not None and not task.cancelled() and error is None:
                spawn(undo(task.result()))
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def cancel(future: Future[T]) -> None:
        if future.cancelled():
            _threads.post(loop, task.cancel)

    task.add_done_callback(finish)
    future.add_done_callback(cancel)


async def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the control thread and awaits it here; cancelling here cancels it there."""
    if asyncio.get_running_loop() is _control.loop:
        return await coroutine
    return await asyncio.wrap_future(submit(coroutine))


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the control thread and blocks until it ends. RuntimeError on the control thread.
    An exception in the waiting thread, such as KeyboardInterrupt, cancels the coroutine."""
    _refuse_on_control_thread(coroutine)
    future = submit(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def open_by(coroutine: Coroutine[Any, Any, T], undo: Undo[T]) -> T:
    """As run(). If it is cancelled, what it opened meanwhile is passed to `undo` on the control thread, so
    that nothing stays open that the caller does not know."""
    future = submit(coroutine, undo=undo)
    try:
        return await asyncio.wrap_future(future)
    except BaseException:
        _give_up(future, undo)
        raise


def open_by_blocking(coroutine: Coroutine[Any, Any, T], undo: Undo[T]) -> T:
    """As open_by(), for threads, where KeyboardInterrupt cancels. RuntimeError on the control thread."""
    _refuse_on_control_thread(coroutine)
    future = submit(coroutine, undo=undo)
    try:
        return future.result()
    except BaseException:
        _give_up(future, undo)
        raise


def _refuse_on_control_thread(coroutine: Coroutine[Any, Any, object]) -> None:
    if is_control_thread():
        coroutine.close()
        raise RuntimeError("a blocking operation of a session was called on the control thread")


def _give_up(future: Future[T], undo: Undo[T]) -> None:
    def discard(future: Future[T]) -> None:
        if future.exception() is None and (loop := _control.loop) is not None:
            _threads.post(loop, lambda: spawn(undo(future.result())))

    if not future.cancel():  # it is finished, or is at the point of it
        future.add_done_callback(discard)


def spawn(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Starts a coroutine as a task. Call it on the control thread; errors go to its exception handler."""
    task = asyncio.ensure_future(coroutine)
    _control.tasks.add(task)  # the loop holds tasks weakly
    task.add_done_callback(_control.tasks.discard)
    return task


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Returns the loop of the control thread; None if it has not started, or is ending."""
    with _control.lock:
        return None if _control.is_ending else _control.loop


def stop(orderly: Callable[[], Coroutine[Any, Any, None]], timeout_s: float) -> None:
    """Refuses further work, runs `orderly` on the control thread for at most `timeout_s`, and stops the
    thread."""
    with _control.lock:
        _control.is_ending = True
        loop, thread = _control.loop, _control.thread
    if loop is None or thread is None:
        return
    ending = asyncio.run_coroutine_threadsafe(orderly(), loop)
    try:
        with contextlib.suppress(FutureTimeoutError):
            ending.result(timeout_s)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_S)


def is_control_thread() -> bool:
    return threading.current_thread() is _control.thread


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_S / 2))
    loop.close()


def _forget_after_fork() -> None:
    if _control.selector is not None:
        _forks.disconnect_selector(_control.selector)
    _forks.keep(_control.loop, _control.tasks)
    _control.__init__()  # type: ignore[misc] # the thread stayed with the parent


os.register_at_fork(after_in_child=_forget_after_fork)
