"""The server side of the connection manager."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import TYPE_CHECKING

from verbena import _native, errors
from verbena._forks import own_repr
from verbena.verbs.connection import Connection, connect_params
from verbena.verbs.readiness import Readiness
from verbena.verbs.resource import Resource

if TYPE_CHECKING:
    from verbena.verbs.context import Context
    from verbena.verbs.queue_pair import QueuePair


class Listener(Resource):
    """Accepts connection requests. A context manager, blocking or async."""

    __slots__ = ("_native", "_readiness", "context")

    def __init__(self, context: Context, native: _native.Listener) -> None:
        super().__init__()
        self.context = context
        self._native = native
        self._readiness = Readiness(native.fileno())

    @property
    def address(self) -> str:
        """The address that peers connect to, with the actual port or name."""
        return self._native.address

    async def accept(self) -> ConnectRequest:
        """Waits for the next request; accept() or reject() it. ClosedError if the listener is closed."""
        while (request := self._native.next()) is None:
            await self._readiness.wait()
        return ConnectRequest(self.context, request)

    def accept_blocking(self, timeout_s: float | None = None) -> ConnectRequest:
        """accept() for threads. TimedOutError if no request arrives within `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (request := self._native.next()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                detail = f"no peer connected to {self.address} within {timeout_s} s"
                raise errors.setup_error("connect_timeout", operation="accept", detail=detail)
            self._readiness.wait_blocking(left)
        return ConnectRequest(self.context, request)

    def _take_over(self, connection: socket.socket, timeout_s: float) -> None:
        """Takes over an accepted TCP connection, of which no byte has been read, and closes it if the request
        is not complete within `timeout_s`. For listeners that _listen_to_sockets() has made."""
        self._native.take_over(connection.detach(), max(1, round(timeout_s * 1000)))

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_native(self) -> None:
        self._native.close()
        self._readiness.close()

    @own_repr
    def __repr__(self) -> str:
        return f"<Listener at {self.address!r}>"


class ConnectRequest:
    """A connection request of a peer. If it is dropped without accept() or reject(), it is rejected."""

    __slots__ = ("_context", "_native", "peer", "private_data")

    def __init__(self, context: Context, native: _native.ConnectRequest) -> None:
        self._context = context
        self._native = native
        self.peer = native.peer
        self.private_data = native.private_data

    async def accept(
        self, qp: QueuePair, *, private_data: bytes = b"", timeout_s: float = 5.0, **params: int
    ) -> Connection:
        """Moves a queue pair from RESET or INIT to RTS with this peer. Errors and `params` as for
        Context.connect()."""
        connection = self._begin_accept(qp, private_data, timeout_s, params)
        await connection._established(timeout_s)
        return connection

    def accept_blocking(
        self, qp: QueuePair, *, private_data: bytes = b"", timeout_s: float = 5.0, **params: int
    ) -> Connection:
        """accept() for threads."""
        connection = self._begin_accept(qp, private_data, timeout_s, params)
        connection._established_blocking(timeout_s)
        return connection

    def reject(self, *, private_data: bytes = b"") -> None:
        """Rejects the request; the peer gets a RejectedError with this private data."""
        self._native.reject(private_data)

    def _begin_accept(
        self, qp: QueuePair, private_data: bytes, timeout_s: float, params: dict[str, int]
    ) -> Connection:
        wanted = connect_params(self._context.attributes, private_data, timeout_s, params)
        return Connection(qp, self._native.accept(qp._native, wanted), "accept", self.peer)

    def __repr__(self) -> str:
        return f"<ConnectRequest of {self.peer!r}>"
