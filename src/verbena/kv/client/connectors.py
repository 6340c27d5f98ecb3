"""Existing programs on these wires: connections for redis-py and valkey-py, plain and asyncio.

    redis.Redis(connection_pool=verbena.kv.redis_pool("127.0.0.1:7471"))

Pipelines, transactions and pub/sub work as over TCP. Connections to one address share a session."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import threading
from typing import Any

from verbena import sync, transport
from verbena.errors import VerbenaError
from verbena.kv.client.async_streams import ReplyReader, StreamWriter
from verbena.kv.client.library_parsers import native_async_parser, native_parser
from verbena.kv.client.stream_socket import StreamSocket


class _Shared:
    """A session with the sockets that use it."""

    def __init__(self) -> None:
        self.users: set[SharedSessionSocket] = set()
        self._opening = threading.Lock()
        self._session: sync.Session | None = None
        self._failure: VerbenaError | None = None

    @property
    def is_usable(self) -> bool:
        ended = self._session is not None and (self._session.closed or self._session._native.is_over)
        return not ended and self._failure is None

    def session(self, address: str, secret: bytes) -> sync.Session:
        """Returns the session; the first caller opens it."""
        with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                try:
                    self._session = sync.connect(address, secret=secret)
                except VerbenaError as error:
                    self._failure = error
                    raise
            return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


class _Sessions:
    """Sessions that sockets share; closing the last socket of a session closes the session. The collector may
    close a socket at any point below, which calls give() in the thread that holds the lock: so the lock is
    reentrant, and it is not held while a session is opened or closed."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Begins without sessions; those of a forked process stay with the parent."""
        self._lock = threading.RLock()
        self._open: dict[tuple[str, bytes], _Shared] = {}

    def take(self, address: str, secret: bytes, user: SharedSessionSocket) -> _Shared:
        key = (address, secret)
        with self._lock:
            while True:
                shared = self._open.setdefault(key, _Shared())
                shared.users.add(user)
                if shared.is_usable and self._open.get(key) is shared:
                    return shared
                shared.users.discard(user)
                self._remove(shared)

    def give(self, shared: _Shared, user: SharedSessionSocket) -> None:
        with self._lock:
            shared.users.discard(user)
            is_unused = not shared.users
            if is_unused:
                self._remove(shared)
        if is_unused:
            shared.close()

    def _remove(self, shared: _Shared) -> None:
        for key in [key for key, other in list(self._open.items()) if other is shared]:
            self._open.pop(key, None)


_sessions = _Sessions()


class SharedSessionSocket(StreamSocket):
    """A stream of the session that all connections to an address share."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._closed = False
        self._shared = _sessions.take(address, secret, self)
        try:
            super().__init__(self._shared.session(address, secret), address)
        except BaseException:
            _sessions.give(self._shared, self)
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            super().close()
            _sessions.give(self._shared, self)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _AsyncSessions:
    """Shared sessions for asyncio: connections of one event loop to one address share a session."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
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
        task, users = self._open.get(key, (None, 0))
        if task is None:  # a connection that was open when the process forked
            return
        if users > 1:
            self._open[key] = (task, users - 1)
            return
        del self._open[key]
        if task.done() and not task.cancelled() and task.exception() is None:
            await task.result().close()


_async_sessions = _AsyncSessions()


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

        def set_parser(self, parser_class: type[Any]) -> None:
            # redis-py sets the protocol before the parser, valkey-py after it, and replaces the parser later.
            protocol = getattr(self, "protocol", 2)
            super().set_parser(native_parser(library, parser_class, protocol))  # type: ignore[arg-type]

        def read_response(
            self, disable_decoding: bool = False, *, push_request: bool = False, **options: Any
        ) -> Any:
            self._parser.push_request = push_request
            return super().read_response(disable_decoding, push_request=push_request, **options)

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            # In one message, instead of one for each piece.
            pieces = command if isinstance(command, (bytes, list)) else list(command)
            super().send_packed_command([pieces], check_health)

        def _connect(self) -> StreamSocket:
            try:
                made = SharedSessionSocket(self._where, self.secret)
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
    exceptions: Any = importlib.import_module(f"{library}.exceptions")

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

        @property
        def is_connected(self) -> bool:
            """A forked child connects anew."""
            return super().is_connected and not self._writer._inherited

        def set_parser(self, parser_class: type[Any]) -> None:
            protocol = getattr(self, "protocol", 2)
            super().set_parser(native_async_parser(library, parser_class, protocol))  # type: ignore[arg-type]

        def read_response(
            self,
            disable_decoding: bool = False,
            timeout: float | None = None,
            *,
            push_request: bool | None = False,
            **options: Any,
        ) -> Any:
            self._parser.push_request = push_request
            return super().read_response(disable_decoding, timeout, push_request=push_request, **options)

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            # The library runs each command in a task of its own, to limit its time. The writer does that.
            if not self.is_connected or (check_health and self.health_check_interval):
                await super().send_packed_command(command, check_health)
                return
            self._writer.timeout_s = self.socket_timeout
            try:
                self._writer.writelines([command] if isinstance(command, bytes) else command)
                await self._writer.drain()
            except BaseException as error:
                await self.disconnect(nowait=True)
                if isinstance(error, asyncio.TimeoutError):
                    raise exceptions.TimeoutError("Timeout writing to socket") from None
                if isinstance(error, OSError):
                    raise exceptions.ConnectionError(f"Error while writing: {error}") from error
                raise

        async def _connect(self) -> None:
            try:
                session = await _async_sessions.take(self._where, self.secret)
            except VerbenaError as error:
                raise ConnectionError(str(error)) from error
            self._reader = ReplyReader(session)
            release = functools.partial(_async_sessions.give, self._where, self.secret)
            self._writer = StreamWriter(session, self._reader, release)
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
