"""Handlers of the blocking form: plain functions that run in threads, each call in one of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from verbena import _threads
from verbena.errors import setup_error
from verbena.transport.codecs.codec import Codec
from verbena.transport.codecs.handlers import encoding
from verbena.transport.outcomes import Outcome
from verbena.transport.serving import describe

if TYPE_CHECKING:
    from verbena.transport.session import Request, Session

BlockingHandler = Callable[["Request"], Any]  # returns a Buffer or None, or a value for the codec


class InThread:
    """A handler that runs in a thread."""

    def __init__(self, handler: BlockingHandler) -> None:
        self._handler = handler

    def start(self, session: Session, call: int, name: str, payload: bytes) -> None:
        _threads.handlers.submit(functools.partial(self._run, session, call, name, payload))

    def _run(self, session: Session, call: int, name: str, payload: bytes) -> None:
        from verbena.transport.session import Request  # which uses this module

        try:
            result = self._handler(Request(session.sync, name, payload))
            session._native.reply(call, b"" if result is None else result)
        except BaseException as error:  # also SystemExit: the caller needs an answer
            session._native.fail(call, Outcome.REMOTE_FAILURE, describe(error))


def in_threads(
    handlers: Mapping[str, BlockingHandler] | None, codec: Codec | None = None
) -> dict[str, InThread]:
    """Returns the handlers for a session with this codec. invalid_argument for an async function: it needs
    an event loop."""
    for name, handler in (handlers or {}).items():
        if inspect.iscoroutinefunction(handler):
            detail = f"{name!r} is an async function: use verbena.connect() or verbena.listen()"
            raise setup_error("invalid_argument", operation="register handlers", detail=detail)
    return {name: InThread(handler) for name, handler in encoding(handlers or {}, codec).items()}
