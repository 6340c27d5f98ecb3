"""How sessions, listeners and nodes end: each is closed once, on the control thread, and all that are open
at the end of the interpreter are closed then, at once and in bounded time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from verbena import _ending, _forks, _threads
from verbena.errors import ClosedError
from verbena.transport import control

Close = Callable[[], Coroutine[Any, Any, None]]

_NOTIFY_S = 0.3  # at the end of the process, for the peers' acknowledgements of close messages
_CLOSE_S = 0.6  # for everything that is closed then


class Endable(Protocol):
    """What is closed at the end of the process."""

    async def _close(self) -> None: ...


class _Lifetime:
    """What is open in this process, and whether the process is ending."""

    def __init__(self) -> None:
        self.open: set[Endable] = set()
        self.notify_until: float | None = None  # set when the process ends


_lifetime = _Lifetime()


def is_ending() -> bool:
    """Returns whether the end of the process has begun: open nodes are being closed, or are closed."""
    return _lifetime.notify_until is not None


def why_closed(otherwise: str) -> str:
    """Returns the reason why something of this process was closed."""
    return control.ENDING if is_ending() else otherwise


def notify_s(usual_s: float) -> float:
    """Returns how long a close may wait for the peer: at the end of the process, all of them together."""
    return usual_s if _lifetime.notify_until is None else max(0.0, _lifetime.notify_until - time.monotonic())


async def close(work: Close) -> None:
    """Runs a close on the control thread and awaits it. Returns at once when the process is ending, which
    closes everything."""
    if (future := _start_close(work)) is not None:
        await asyncio.wrap_future(future)


def close_blocking(work: Close) -> None:
    """As close(), for threads. After an exception in the waiting thread, such as KeyboardInterrupt, the close
    continues. On the control thread and its workers, where the collector may run a finaliser, it does not
    wait: the close needs them."""
    future = _start_close(work)
    if future is not None and not (control.is_control_thread() or _threads.workers.is_current()):
        future.result()


def _start_close(work: Close) -> Future[None] | None:
    """None: there is nothing to close, or it is closed with the process."""
    loop = control.running_loop()
    return None if loop is None else asyncio.run_coroutine_threadsafe(work(), loop)


async def close_all(closes: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs closes at once. An error of one goes to the loop's exception handler, and the others continue."""
    for result in await asyncio.gather(*closes, return_exceptions=True):
        if isinstance(result, Exception):
            context = {"message": "a close failed unexpectedly", "exception": result}
            asyncio.get_running_loop().call_exception_handler(context)


class CloseOnce:
    """A close that runs once on the control thread: every caller waits for its end."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._task is not None

    async def run(self, work: Close) -> None:
        if self._task is None:
            self._task = control.spawn(work())
        await asyncio.shield(self._task)


def opened(node: Endable) -> None:
    """Registers what the end of the process closes."""
    _lifetime.open.add(node)


def closed(node: Endable) -> None:
    _lifetime.open.discard(node)


def _end() -> None:
    _lifetime.notify_until = time.monotonic() + _NOTIFY_S
    threading.excepthook = _without_closed(threading.excepthook)
    control.stop(_close_nodes, _CLOSE_S)


async def _close_nodes() -> None:
    await close_all([node._close() for node in list(_lifetime.open)])


def _without_closed(report: Callable[[threading.ExceptHookArgs], object]) -> Any:
    """A hook that does not report what the end of the process causes in daemon threads: they end with it."""

    def hook(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        while error is not None and not isinstance(error, ClosedError):
            error = error.__cause__ or error.__context__
        if error is None or args.thread is None or not args.thread.daemon:
            report(args)

    return hook


def _forget_after_fork() -> None:
    _forks.keep(_lifetime.open)  # what is open stays with the parent
    _lifetime.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_after_fork)
_ending.at_end(_end)
