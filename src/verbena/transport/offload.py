"""Runs a long transfer in a thread on behalf of an event loop."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from verbena import _threads
from verbena.transport.requests import Progress

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Transfer(Protocol[T_co]):
    """Calls `progress` from time to time, and ends if that raises."""

    def __call__(self, *, progress: Progress) -> T_co: ...


async def in_thread(transfer: Transfer[T], progress: Progress | None = None) -> T:
    """Runs a transfer in a thread; `progress` runs on this loop, and an exception in it ends the transfer.
    After a cancellation it returns when the transfer no longer uses its buffer."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    stopped = False
    failure: BaseException | None = None

    def show(done: int) -> None:
        nonlocal stopped, failure
        if progress is None or failure is not None:
            return
        try:
            progress(done)
        except BaseException as error:
            stopped, failure = True, error

    def report(done: int) -> None:
        if stopped:
            raise InterruptedError
        loop.call_soon_threadsafe(show, done)

    def run() -> None:
        try:
            result = transfer(progress=report)
        except BaseException as error:
            _threads.post(loop, _threads.fail, ended, error)
        else:
            _threads.post(loop, _threads.finish, ended, result)

    _threads.transfers.submit(run)
    try:
        result = await asyncio.shield(ended)
    except asyncio.CancelledError:
        stopped = True
        await asyncio.wait([ended])
        ended.exception()  # marks the exception as retrieved
        raise
    except InterruptedError:
        if failure is not None:
            raise failure from None
        raise
    if failure is not None:
        raise failure
    return result
