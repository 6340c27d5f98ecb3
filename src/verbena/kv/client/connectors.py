"""Existing programs on these wires: connections for redis-py and valkey-py, plain and asyncio.

    redis.Redis(connection_pool=verbena.kv.redis_pool("127.0.0.1:7471"))

Pipelines, transactions and pub/sub work as over TCP. Connections to one address share a session."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import threading
from collections.abc import Iterable
from typing import Any

from verbena import _native, transport
from verbena._native.kv import CLOSE_METHOD, RECEIVE_METHOD
from verbena.errors import VerbenaError
from verbena.kv.client.async_client import send_resp
from verbena.kv.client.socket_adapter import SocketAdapter

_stream_numbers = itertools.count(1 << 30)


class _Sessions:
    """Sessions that connections share; closing the last connection of a session closes the session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, bytes], tuple[transport.Session, int]] = {}

    def take(self, address: str, secret: bytes) -> transport.Session:
        with self._lock:
            session, users = self._open.get((address, secret), (None, 0))
            if session is None or session.closed or session._native.is_over:
                session, users = transport.connect_blocking(address, secret=secret), 0
            self._open[address, secret] = (session, users + 1)
            return session

    def give(self, address: str, secret: bytes, session: transport.Session) -> None:
        with self._lock:
            known, users = self._open.get((address, secret), (None, 0))
            if known is not session:
                return
            if users > 1:
                self._open[address, secret] = (session, users - 1)
                return
            del self._open[address, secret]
        session.close_blocking()


_sessions = _Sessions()


class StreamSocket(SocketAdapter):
    """A stream of a session."""

    def __init__(self, address: str, secret: bytes) -> None:
        super().__init__()
        self._address, self._secret = address, secret
        self._session = _sessions.take(address, secret)
        self._stream = _native.kv.Stream(self._session._native, next(_stream_numbers))

    def getsockname(self) -> tuple[str, int]:
        return ("session", self._stream.number)

    def getpeername(self) -> str:
        return self._address

    def _send(self, data: bytes, timeout_s: float) -> bytes:
        return self._stream.send(data, timeout_s)

    def _receive(self, size: int, timeout_s: float) -> bytes | None:
        return self._stream.receive(timeout_s)

    def _close(self) -> None:
        self._stream.close()
        _sessions.give(self._address, self._secret, self._session)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _AsyncSessions:
    """Shared sessions for asyncio: connections of one event loop to one address share a session."""

    def __init__(self) -> None:
        self._open: dict[tuple[asyncio.AbstractEventLoop, str, bytes], tuple[asyncio.Task[Any], int]] = {}

    async def take(self, address: str, secret: bytes) -> transport.Session:
        loop = asyncio.get_running_loop()
        key = (loop, address, secret)
        task, users = self._open.get(key, (None, 0))
        if task is None or (task.done() and (task.exception() or task.result().closed)):
            task, users = loop.create_task(transport.connect(address, secret=secret)), 0
        self._open[key] = (task, users + 1)
        try:
            session: transport.Session = await asyncio.shield(task)
        except BaseException:
            await self.give(address, secret)
            raise
        return session

    async def give(self, address: str, secret: bytes) -> None:
        key = (asyncio.get_running_loop(), address, secret)
        task, users = self._open[key]
        if users > 1:
            self._open[key] = (task, users - 1)
            return
        del self._open[key]
        if task.done() and not task.cancelled() and task.exception() is None:
            await task.result().close()


_async_sessions = _AsyncSessions()


class _StreamWriter:
    """The part of asyncio.StreamWriter that client libraries use."""

    def __init__(
        self, session: transport.Session, reader: asyncio.StreamReader, address: str, secret: bytes
    ) -> None:
        self._session, self._reader = session, reader
        self._address, self._secret = address, secret
        self._number = next(_stream_numbers).to_bytes(4, "little")
        self._unsent: list[bytes] = []
        self._closing = False
        self._receiver = asyncio.get_running_loop().create_task(self._receive())

    def write(self, data: bytes) -> None:
        self._unsent.append(bytes(data))

    def writelines(self, lines: Iterable[bytes]) -> None:
        self._unsent.extend(map(bytes, lines))

    async def drain(self) -> None:
        if self._closing:
            raise ConnectionResetError("the connection is closed")
        data, self._unsent = b"".join(self._unsent), []
        if data:
            try:
                self._feed(await send_resp(self._session, self._number, data))
            except asyncio.CancelledError:
                self.close()  # part of a command or of its reply is lost
                raise
            except VerbenaError as error:
                self._reader.feed_eof()
                raise ConnectionError(str(error)) from error

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._receiver.cancel()
        self._reader.feed_eof()
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def wait_closed(self) -> None:
        if self._closing:
            await self._ending

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def _feed(self, data: bytes) -> None:
        if data and not self._closing:
            self._reader.feed_data(data)

    async def _receive(self) -> None:
        try:
            while True:
                self._feed(await self._session.call(RECEIVE_METHOD, self._number))
        except VerbenaError:
            self._reader.feed_eof()

    async def _end(self) -> None:
        with contextlib.suppress(VerbenaError):  # the server then removes the stream when the session ends
            await self._session.call(CLOSE_METHOD, self._number, timeout_s=1.0)
        await _async_sessions.give(self._address, self._secret)


def connection_class(library: str) -> type[Any]:
    """Returns a connection class of "redis" or "valkey" over sessions, for a pool's `connection_class`; it
    takes `host`, `port` and `secret`."""
    base: Any = importlib.import_module(f"{library}.connection").AbstractConnection

    class SessionConnection(base):  # type: ignore[misc]
        def __init__(
            self,
            host: str = "127.0.0.1",
            port: int = transport.DEFAULT_PORT,
            *,
            secret: bytes = b"",
            socket_timeout: float | None = None,
            **options: Any,
        ) -> None:
            self.host, self.port, self.secret = host, port, secret
            self._where = _address(host, port)
            super().__init__(**options)
            self.socket_timeout = socket_timeout

        def repr_pieces(self) -> list[tuple[str, Any]]:
            return [("host", self.host), ("port", self.port), ("db", self.db)]

        def _connect(self) -> StreamSocket:
            try:
                made = StreamSocket(self._where, self.secret)
            except VerbenaError as error:
                raise ConnectionError(str(error)) from error
            made.settimeout(self.socket_timeout)
            return made

        def _host_error(self) -> str:
            return self._where

    return SessionConnection


def async_connection_class(library: str) -> type[Any]:
    """As connection_class(), for the library's asyncio connections."""
    base: Any = importlib.import_module(f"{library}.asyncio.connection").AbstractConnection

    class AsyncSessionConnection(base):  # type: ignore[misc]
        def __init__(
            self,
            *,
            host: str = "127.0.0.1",
            port: int = transport.DEFAULT_PORT,
            secret: bytes = b"",
            **options: Any,
        ) -> None:
            self.host, self.port, self.secret = host, port, secret
            self._where = _address(host, port)
            super().__init__(**options)

        def repr_pieces(self) -> list[tuple[str, Any]]:
            return [("host", self.host), ("port", self.port), ("db", self.db)]

        async def _connect(self) -> None:
            try:
                session = await _async_sessions.take(self._where, self.secret)
            except VerbenaError as error:
                raise ConnectionError(str(error)) from error
            self._reader = asyncio.StreamReader()
            self._writer = _StreamWriter(session, self._reader, self._where, self.secret)
            await self.on_connect()

        def _host_error(self) -> str:
            return self._where

    return AsyncSessionConnection


def _split(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"host": host.strip("[]"), "port": int(port)}


def redis_pool(address: str, **options: Any) -> Any:
    """Returns a redis.ConnectionPool over sessions."""
    library = importlib.import_module("redis")
    return library.ConnectionPool(connection_class=connection_class("redis"), **_split(address), **options)


def valkey_pool(address: str, **options: Any) -> Any:
    """Returns a valkey.ConnectionPool over sessions."""
    library = importlib.import_module("valkey")
    return library.ConnectionPool(connection_class=connection_class("valkey"), **_split(address), **options)


def async_redis_pool(address: str, **options: Any) -> Any:
    """Returns a redis.asyncio.ConnectionPool over sessions."""
    library = importlib.import_module("redis.asyncio")
    return library.ConnectionPool(
        connection_class=async_connection_class("redis"), **_split(address), **options
    )


def async_valkey_pool(address: str, **options: Any) -> Any:
    """Returns a valkey.asyncio.ConnectionPool over sessions."""
    library = importlib.import_module("valkey.asyncio")
    return library.ConnectionPool(
        connection_class=async_connection_class("valkey"), **_split(address), **options
    )
