"""A stream of a session as the part of a socket that redis-py and valkey-py use."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from verbena import _native, sync
from verbena.errors import VerbenaError


class StreamSocket:
    """`buffer` has the members of the libraries' SocketBuffer: their parsers read replies from it."""

    def __init__(self, session: sync.Session, address: str) -> None:
        self.session = session
        self._address = address

        def socket_error(error: VerbenaError) -> OSError:
            """What a socket would raise."""
            if error.code == "call_timeout":
                return TimeoutError("timed out")
            return ConnectionError(str(session._map(error)))

        self.buffer = _native.kv.ReplyBuffer(session._native, socket_error)
        self.sendall = self.buffer.send  # takes bytes, or a list of pieces as one message

    def getsockname(self) -> tuple[str, int]:
        return ("session", self.buffer.number)

    def getpeername(self) -> str:
        return self._address

    def settimeout(self, timeout_s: float | None) -> None:
        self.buffer.socket_timeout = timeout_s

    def gettimeout(self) -> float | None:
        return self.buffer.socket_timeout

    def setblocking(self, blocking: bool) -> None:
        self.settimeout(None if blocking else 0.0)

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = self.buffer.recv(size, bool(flags & socket.MSG_PEEK))
        if data is not None:
            return data
        if self.buffer.socket_timeout == 0.0:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        raise TimeoutError("timed out")

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(size or view.nbytes, flags)
        view[: len(data)] = data
        return len(data)

    def pending(self) -> int:
        """As for TLS sockets: the number of bytes that can be read without waiting."""
        return self.buffer.unread_bytes()

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None:
        """Ends the stream. The session stays open."""
        self.buffer.close()
