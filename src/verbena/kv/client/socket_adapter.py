"""As much of a socket as client libraries use, for what is none: streams of sessions, windows of RDMA."""

from __future__ import annotations

import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from verbena.errors import VerbenaError

_FOR_EVER = -1.0


class SocketFace(ABC):
    def __init__(self) -> None:
        self._unread = memoryview(b"")  # a view, since what is long is taken in thousands of steps
        self._timeout_s: float | None = None
        self._closed = False

    @abstractmethod
    def _send(self, data: bytes, timeout_s: float) -> bytes:
        """Sends all; returns what was heard meanwhile."""

    @abstractmethod
    def _receive(self, size: int, timeout_s: float) -> bytes | None:
        """What has come, or None after the time-out; it may be more than `size`."""

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
        heard = self._try(lambda: self._send(data, self._timeout_s or _FOR_EVER))
        if heard:
            self._unread = memoryview(b"".join([self._unread, heard]))

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self._unread:
            seconds = _FOR_EVER if self._timeout_s is None else self._timeout_s
            heard = self._try(lambda: self._receive(size, seconds))
            if heard is None:
                if seconds == 0.0:
                    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
                raise TimeoutError("timed out")
            self._unread = memoryview(heard)
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
        """As TLS sockets say it: what can be had without waiting."""
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
