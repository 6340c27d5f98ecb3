"""Accepts TCP connections for handshakes and for links of the iwarp wire, which share a port. The time limit
of a connection starts at accept. The number of connections is bounded, for undecided ones and for handshakes
separately: a new connection above a bound takes the place of the oldest one of its kind, so that silent peers
cannot lock out others. It waits until that one is not new either, so that peers in a burst finish. The wire
bounds its links in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from verbena._forks import close_in_child
from verbena.errors import VerbenaError, setup_error
from verbena.transport.handshake.first_bytes import MAX_BYTES, Protocol, detect_protocol

_READ_LIMIT = 64 << 10
_RETRY_S = 0.1
_NEW_S = 0.05
_LOOK_EVERY_S = 0.002
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

# Serves one connection until its deadline, in seconds from now, and closes it.
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, float], Awaitable[None]]
# Takes over the connection of a link, whose request must be complete within that many seconds.
TakeLink = Callable[[socket.socket, float], object]


class _Connection(NamedTuple):
    socket: socket.socket
    since: float


_Unfinished = dict[asyncio.Task[None], _Connection]  # oldest first


class Acceptor:
    """`on_refused` is called with the error of a connection that was given up before `serve` saw it, or that
    was replaced by a newer one. Runs on one event loop."""

    def __init__(
        self,
        serve: Serve,
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        max_unfinished: int,
        on_refused: Callable[[VerbenaError, str], object],
    ) -> None:
        self.take_link: TakeLink | None = None  # None: every connection is for a handshake
        self._serve = serve
        self._tls = tls
        self._timeout_s = timeout_s
        self._max_unfinished = max_unfinished
        self._on_refused = on_refused
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._undecided: _Unfinished = {}
        self._handshakes: _Unfinished = {}
        self._abandoned: _Unfinished = {}  # cancelled while they were undecided
        self._replaced: dict[asyncio.Task[None], str] = {}  # cancelled tasks, with their peers

    def start(self, sockets: list[socket.socket]) -> None:
        """Accepts at these listening sockets, and owns them."""
        loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._tasks = [loop.create_task(self._accept(one)) for one in sockets]

    def close(self) -> None:
        """Stops accepting, and ends unfinished handshakes."""
        for task in self._tasks:
            task.cancel()
        for one in self._sockets:
            one.close()
        self._tasks, self._sockets = [], []
        for task in (*self._undecided, *self._handshakes):
            task.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Without free descriptors accept() would fail again at once: wait instead of spinning.
                await asyncio.sleep(_RETRY_S if error.errno in _OUT_OF_RESOURCES else 0)
                continue
            close_in_child(connection)
            deadline = loop.time() + self._timeout_s
            try:
                await self._make_room(self._undecided)
            except asyncio.CancelledError:
                connection.close()
                raise
            task = loop.create_task(self._take(connection, deadline))
            task.add_done_callback(self._finished)
            self._undecided[task] = _Connection(connection, loop.time())
            await asyncio.sleep(0)  # the handshakes proceed between two connections of a burst

    async def _make_room(self, kind: _Unfinished) -> None:
        loop = asyncio.get_running_loop()
        while len(kind) >= self._max_unfinished:
            oldest, replaced = next(iter(kind.items()))
            if loop.time() - replaced.since < _NEW_S:
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            self._replaced[oldest] = _name(replaced.socket)
            oldest.cancel()
            del kind[oldest]
            if kind is self._undecided:
                self._abandoned[oldest] = replaced

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        undecided = self._undecided.pop(task, None) or self._abandoned.pop(task, None)
        if undecided is not None:  # a handshake or the wire closes its own
            undecided.socket.close()
        replaced = self._replaced.pop(task, None)
        if task.cancelled():
            if replaced is not None:  # otherwise close() has cancelled it
                detail = f"{self._max_unfinished} handshakes were unfinished, and this one was the oldest"
                self._on_refused(setup_error("limit_exceeded", operation="hello", detail=detail), replaced)
        elif (error := task.exception()) is not None:
            context = {"message": "a handshake failed unexpectedly", "exception": error}
            task.get_loop().call_exception_handler(context)

    async def _take(self, connection: socket.socket, deadline: float) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        protocol = Protocol.HELLO
        if self.take_link is not None:
            try:
                protocol = await _first_protocol(connection, deadline)
            except TimeoutError:
                detail = f"the first bytes were not complete after {self._timeout_s:g} s"
                error = setup_error("connect_timeout", operation="hello", detail=detail)
                self._on_refused(error, _name(connection))
                return
        if protocol is Protocol.LINK and self.take_link is not None:
            del self._undecided[task]
            self.take_link(connection, deadline - loop.time())
            return
        await self._make_room(self._handshakes)
        del self._undecided[task]
        self._handshakes[task] = _Connection(connection, loop.time())
        await self._handshake(connection, deadline)

    async def _handshake(self, connection: socket.socket, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        peer = _name(connection)
        reader = asyncio.StreamReader(limit=_READ_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=max(0.001, deadline - loop.time()) if self._tls else None,
            )
        except (OSError, asyncio.TimeoutError) as error:
            if isinstance(error, TimeoutError | asyncio.TimeoutError | ConnectionAbortedError):
                detail = f"no TLS handshake within {self._timeout_s:g} s"
                self._on_refused(setup_error("connect_timeout", operation="hello", detail=detail), peer)
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._serve(reader, writer, max(0.0, deadline - loop.time()))
        finally:
            with contextlib.suppress(OSError):
                transport.abort()


async def _first_protocol(connection: socket.socket, deadline: float) -> Protocol:
    """Waits for the first bytes, without consuming them. TimeoutError after the deadline."""
    wanted = 1
    while True:
        is_over = _is_over(connection)
        try:
            decision = detect_protocol(connection.recv(MAX_BYTES, socket.MSG_PEEK))
        except BlockingIOError:
            decision = 1
        except OSError:
            return Protocol.HELLO  # the handshake reports the error
        if isinstance(decision, int) and is_over:
            decision = Protocol.HELLO
        if isinstance(decision, Protocol):
            if wanted != 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return decision
        if decision != wanted:
            wanted = decision
            # The kernel wakes this task once `wanted` bytes have arrived.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        elif wanted != 1:
            await asyncio.sleep(_RETRY_S)  # woken without them: the kernel has no room for more
        await _readable(connection, deadline)


async def _readable(connection: socket.socket, deadline: float) -> None:
    loop, number = asyncio.get_running_loop(), connection.fileno()
    ready: asyncio.Future[bool] = loop.create_future()

    def finish(is_late: bool) -> None:
        if not ready.done():
            ready.set_result(is_late)

    loop.add_reader(number, finish, False)
    late = loop.call_at(deadline, finish, True)
    try:
        if await ready:
            raise TimeoutError
    finally:
        late.cancel()
        loop.remove_reader(number)


def _is_over(connection: socket.socket) -> bool:
    """Whether the peer sends no more."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _name(connection: socket.socket) -> str:
    try:
        peer = connection.getpeername()
    except OSError:
        return "?"
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
