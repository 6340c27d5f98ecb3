"""The part of the socket interface that client libraries use, for streams of sessions and RDMA windows."""

from __future__ import annotations

import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from verbena.errors import VerbenaError

_FOR_EVER = -1.0


class SocketAdapter(ABC):
    def __init__(self) -> None:
        self._unread = memoryview(b"")  # a view: a long reply is consumed in thousands of steps
        self._timeout_s: float | None = None
        self._closed = False

    @abstractmethod
    def _send(self, data: bytes, timeout_s: float) -> bytes:
        """Sends all of it; returns bytes that were received meanwhile."""

    @abstractmethod
    def _receive(self, size: int, timeout_s: float) -> bytes | None:
        """Returns received bytes, perhaps more than `size`; None: timed out."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def getsockname(self) -> tuple[str, int]: ...

    @abstractmethod
    def getpeername(self) -> str: ...

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def setblocking(self, blocking: bool) -> None:
        self._timeout_s = None if blocking else 0.0

    def sendall(self, data: bytes) -> None:
        received = self._try(lambda: self._send(data, self._timeout_s or _FOR_EVER))
        if received:
            self._unread = memoryview(b"".join([self._unread, received]))

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self._unread:
            seconds = _FOR_EVER if self._timeout_s is None else self._timeout_s
            received = self._try(lambda: self._receive(size, seconds))
            if received is None:
                if seconds == 0.0:
                    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
                raise TimeoutError("timed out")
            self._unread = memoryview(received)
        data = bytes(self._unread[:size])
        if not flags & socket.MSG_PEEK:
            self._unread = self._unread[size:]
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(size or view.nbytes, flags)
        view[: len(data)] = data
        return len(data)

    def pending(self) -> int:
        """As for TLS sockets: the number of bytes that can be read without waiting."""
        return len(self._unread)

    def shutdown(self, how: int) -> None: ...  # noqa: B027 - nothing here is half-open

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._close()

    def _try(self, work: Callable[[], Any]) -> Any:
        if self._closed:
            raise OSError("the connection is closed")
        try:
            return work()
        except VerbenaError as error:
            if error.code == "call_timeout":
                raise TimeoutError(str(error)) from error
            raise ConnectionError(str(error)) from error
