"""A stream of a session as the reader and writer that asyncio connections of redis-py and valkey-py use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from verbena import _native, transport
from verbena._forks import OfProcess
from verbena._native.kv import CLOSE_METHOD, RECEIVE_METHOD
from verbena.errors import VerbenaError
from verbena.kv.client.async_nodes import send_resp

_CLOSE_TIMEOUT_S = 1.0
_MOST_IN_A_ROW = 32  # commands whose replies came at once, before other tasks may run


class ReplyReader:
    """The part of asyncio.StreamReader that client libraries use, for one task at a time. `buffer` holds what
    was received; their parsers read from it."""

    def __init__(self, session: transport.Session) -> None:
        def stream_error(error: VerbenaError) -> OSError:
            return ConnectionError(str(session.sync._map(error)))

        self.buffer = _native.kv.ReplyBuffer(session._native, stream_error)
        self._session = session
        self._number = self.buffer.number.to_bytes(4, "little")
        self._receiver: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._in_a_row = 0

    @property
    def _buffer(self) -> range:
        """As long as what was received and not read: the libraries look at it."""
        return range(self.buffer.unread_bytes())

    def at_eof(self) -> bool:
        return self._failure is not None and not self.buffer.unread_bytes()

    async def take_line(self) -> bytes:
        """The next line, without its CRLF."""
        while (line := self.buffer.try_readline()) is None:
            await self._receive()
        return line

    async def take(self, length: int) -> bytes:
        """The next bytes, without the CRLF after them."""
        while (data := self.buffer.try_read(length)) is None:
            await self._receive()
        return data

    async def send(self, pieces: list[bytes], timeout_s: float | None) -> None:
        """Sends commands as one message, and receives what the store has by then: on one host mostly
        the reply, within microseconds, so that no other task runs meanwhile."""
        if self._failure is not None:
            raise ConnectionError(self._failure)
        session = self._session
        if sum(map(len, pieces)) > session.max_message_bytes - len(self._number):
            data = b"".join(pieces)
            self.buffer.feed(await send_resp(session, self._number, data, timeout_s))
            return
        events = session.node._events()
        token, future = events.expect()
        try:
            call = self.buffer.start_send(pieces, self._receiver is None, events.queue, token)
        except BaseException:
            events.forget(token)
            raise
        if call == 0:
            events.forget(token)
            self._in_a_row += 1
            if self._in_a_row == _MOST_IN_A_ROW:
                self._in_a_row = 0
                await asyncio.sleep(0)
            return
        self._in_a_row = 0
        events.start_polling()
        # Not wait_for(), which takes a turn of the event loop more.
        timer = None if timeout_s is None else events.loop.call_later(timeout_s, _expire, future)
        try:
            end = await future
        except asyncio.CancelledError:
            events.forget(token)
            session._native.cancel(call)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if end is None:
            events.forget(token)
            session._native.cancel(call)
            raise asyncio.TimeoutError
        if not isinstance(end, bytes):
            raise session._error("talk to the store", *end)
        self.buffer.feed(end)

    def close(self, reason: str) -> None:
        """Ends the reading; what was received can still be read."""
        self._failure = self._failure or reason
        if self._receiver is not None:
            self._receiver.cancel()

    async def _receive(self) -> None:
        """Waits for more bytes. If the wait is cancelled, the call goes on: its reply would otherwise be
        lost."""
        unread = self.buffer.unread_bytes()
        while self.buffer.unread_bytes() == unread:
            if self._receiver is None:
                if self._failure is not None:
                    raise ConnectionError(self._failure)
                self._receiver = asyncio.get_running_loop().create_task(self._receive_once())
            await asyncio.wait([self._receiver])

    async def _receive_once(self) -> None:
        try:
            self.buffer.feed(await self._session.call(RECEIVE_METHOD, self._number))
        except VerbenaError as error:
            self._failure = self._failure or str(error)
        finally:
            self._receiver = None


class StreamWriter(OfProcess):
    """The part of asyncio.StreamWriter that client libraries use. `release` is awaited when it is closed."""

    def __init__(
        self, session: transport.Session, reader: ReplyReader, release: Callable[[], Awaitable[None]]
    ) -> None:
        self._session, self._reader, self._release = session, reader, release
        self._unsent: list[bytes] = []
        self._closing = False
        self.timeout_s: float | None = None

    def write(self, data: bytes) -> None:
        self._unsent.append(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        self._unsent.extend(lines)

    async def drain(self) -> None:
        if self._closing:
            raise ConnectionResetError("the connection is closed")
        pieces, self._unsent = self._unsent, []
        if not pieces:
            return
        try:
            await self._reader.send(pieces, self.timeout_s)
        except (asyncio.CancelledError, asyncio.TimeoutError):
            self.close()  # part of a command or of its reply is lost
            raise
        except VerbenaError as error:
            self._reader.close(str(error))
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        if self._closing or self._inherited:
            return
        self._closing = True
        self._reader.close("the connection is closed")
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def wait_closed(self) -> None:
        if self._closing:
            await self._ending

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    async def _end(self) -> None:
        number = self._reader.buffer.number.to_bytes(4, "little")
        with contextlib.suppress(VerbenaError):  # the server then removes the stream when the session ends
            await self._session.call(CLOSE_METHOD, number, timeout_s=_CLOSE_TIMEOUT_S)
        await self._release()


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
