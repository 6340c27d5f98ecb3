"""Runs async handlers on their loop. A handler that never has to wait costs no task and no turn of the loop:
workers, tasks that live on, run one handler after the other, the first step of each at once."""

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

_MOST_IDLE = 64
_CANCELLED = "the handler was cancelled"


class Workers:
    """Of one loop; used on it only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()  # not that of whoever happens to be driving the loop
        self._waiting: deque[tuple[Session, int, Awaitable[Buffer | None]]] = deque()
        self._idle: list[_Gate] = []
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly

    def serve(self, session: Session, call: int, result: Awaitable[Buffer | None]) -> None:
        """Awaits a handler's result and answers the call. From a callback of the loop, not from a task."""
        self._waiting.append((session, call, result))
        if self._idle:
            self._idle.pop().open()
        if self._waiting:
            self._hire()

    def cancel(self, session: Session, call: int) -> None:
        """The caller lost interest."""
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
        """Idle workers end; the others do when their handlers have."""
        self._closed = True
        for gate in self._idle:
            gate.cancel()

    def _hire(self) -> None:
        task = self._context.copy().run(self._loop.create_task, self._work(), name="verbena handlers")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Ends when it was cancelled or left with another context: the next handler must not see either."""
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
                if self._closed or len(self._idle) >= _MOST_IDLE:
                    return
                self._idle.append(gate)
                await gate
        finally:
            if gate in self._idle:
                self._idle.remove(gate)
            if self._waiting:
                self._hire()


def describe(error: Exception) -> str:
    """A handler's failure, as the caller is told."""
    return f"{type(error).__name__}: {error}"


class _Gate:
    """What an idle worker awaits: a future that resumes its task when it is opened, not at the loop's next
    turn. What asyncio asks of a future is here, and no more."""

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

    # For the task.

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
