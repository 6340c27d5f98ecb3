"""Runs async handlers on their event loop, in long-lived worker tasks that take one handler after another.
An idle worker resumes synchronously, so a handler that never suspends costs no task and no loop iteration."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from verbena.transport.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from typing_extensions import Buffer

    from verbena.transport.session import Session

_MAX_IDLE = 64
_CANCELLED = "the handler was cancelled"


class Workers:
    """The worker tasks of one event loop. Use it on that loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()  # not the context of the current callback
        self._waiting: deque[tuple[Session, int, Awaitable[Buffer | None]]] = deque()
        self._idle: list[_Gate] = []
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly

    def serve(self, session: Session, call: int, result: Awaitable[Buffer | None]) -> None:
        """Awaits a handler's result in a worker and sends the reply or the failure. Call it from a callback
        of the loop, not from a task: it may resume another task synchronously."""
        self._waiting.append((session, call, result))
        if self._idle:
            self._idle.pop().open()
        if self._waiting:
            self._start_worker()

    def cancel(self, session: Session, call: int) -> None:
        """Cancels the handler of a call; a handler that has not started is closed and reported as failed.
        Does nothing if the call has ended."""
        task = session._tasks.get(call)
        if task is not None:
            task.cancel()
            return
        for waiting in self._waiting:
            if waiting[:2] == (session, call):
                self._waiting.remove(waiting)
                if isinstance(waiting[2], CoroutineType):
                    waiting[2].close()
                session._native.fail(call, Outcome.REMOTE_FAILURE, _CANCELLED)
                return

    def close(self) -> None:
        """Ends idle workers now, and busy ones when their handlers and those that wait have ended."""
        self._closed = True
        for gate in self._idle:
            gate.cancel()

    def _start_worker(self) -> None:
        task = self._context.copy().run(self._loop.create_task, self._work(), name="verbena handlers")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Runs waiting handlers. Ends after a cancellation or a changed context, which the next handler must
        not inherit; a new worker then takes the rest."""
        task, context = asyncio.current_task(), contextvars.copy_context()
        assert task is not None
        gate = _Gate(self._loop)
        try:
            while True:
                while self._waiting:
                    session, call, result = self._waiting.popleft()
                    session._tasks[call] = task
                    try:
                        answer = await result
                        session._native.reply(call, b"" if answer is None else answer)
                    except asyncio.CancelledError:
                        session._native.fail(call, Outcome.REMOTE_FAILURE, _CANCELLED)
                        raise
                    except Exception as error:
                        session._native.fail(call, Outcome.REMOTE_FAILURE, describe(error))
                    finally:
                        del session._tasks[call]
                    if contextvars.copy_context() != context:
                        return
                if self._closed or len(self._idle) >= _MAX_IDLE:
                    return
                self._idle.append(gate)
                await gate
        finally:
            if gate in self._idle:
                self._idle.remove(gate)
            if self._waiting:
                self._start_worker()


def describe(error: BaseException) -> str:
    """Returns the text of a handler's exception that is sent to the calling peer."""
    return f"{type(error).__name__}: {error}"


class _Gate:
    """A future that an idle worker awaits. open() resumes the task synchronously, not in the next iteration.
    Implements only what asyncio requires of a future."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_loop", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._cancelled = False
        self._resume: Callable[[_Gate], object] | None = None

    def open(self) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            self._context.run(resume, self)

    # Called by the task

    def __await__(self) -> Generator[_Gate, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, resume: Callable[[_Gate], object], *, context: contextvars.Context) -> None:
        self._resume, self._context = resume, context

    def result(self) -> None:
        if self._cancelled:
            raise asyncio.CancelledError

    def cancel(self, msg: Any = None) -> bool:
        if not self._cancelled:
            self._cancelled = True
            self._loop.call_soon(self.open)
        return True
