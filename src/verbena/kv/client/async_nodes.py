"""The stores that an asyncio client talks to: the one that it was opened with and, in a cluster, the
others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena._forks import OfProcess
from verbena._native.kv import CLOSE_METHOD, LAYOUT_METHOD, RECEIVE_METHOD, REQUEST_METHOD, STREAM_CLOSED
from verbena.errors import VerbenaError, setup_error
from verbena.kv.client.redirects import HOME, Pause, Requests, SlotMap, Step
from verbena.kv.client.words import raise_first
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from verbena.kv.client.connecting import Access
    from verbena.kv.client.words import Command

_OPERATION = "talk to the store"
_CLOSE_TIMEOUT_S = 1.0


async def send_resp(
    session: transport.Session, stream: bytes, data: bytes, timeout_s: float | None = None
) -> bytes:
    """Sends RESP bytes to a stream, in several messages if needed; the reply bytes that have arrived by
    then."""
    most = session.max_message_bytes - len(stream)
    received = [
        await call_stream(session, REQUEST_METHOD, stream + data[at : at + most], timeout_s)
        for at in range(0, len(data), most)
    ]
    return b"".join(received)


async def call_stream(
    session: transport.Session, method: str, payload: bytes, timeout_s: float | None = None
) -> bytes:
    """A call of a stream. ClosedError if the store has closed it."""
    try:
        return bytes(await session.call(method, payload, timeout_s=timeout_s))
    except VerbenaError as error:
        if error.code == "remote_failure" and error.detail == STREAM_CLOSED:
            raise setup_error("closed", operation=_OPERATION, detail=STREAM_CLOSED) from error
        raise


class AsyncNode(OfProcess):
    """A store, by a stream of a session. After a command that failed or was cancelled its reply may still
    come: the next command begins a new stream, with the commands of `greeting`, unless others have changed
    its state (a transaction, a database) meanwhile."""

    def __init__(
        self, session: transport.Session, greeting: Sequence[Command] = (), *, owns: bool = False
    ) -> None:
        self.session = session
        self._greeting = greeting
        self._owns = owns
        self._state = _native.kv.StreamState()
        self._lock = asyncio.Lock()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._stream = _native.kv.next_stream().to_bytes(4, "little")
        self._unread = b""
        self._is_out_of_step = False

    @property
    def stream(self) -> int:
        return int.from_bytes(self._stream, "little")

    async def run(self, commands: Sequence[Command], ends: float) -> list[Any]:
        """Runs commands in one message; their replies in order, errors included."""
        self._check_process(_OPERATION)
        payload = b"".join(map(_native.kv.encode_command, commands))
        for command in commands:
            self._state.note(command)
        async with self._lock:
            if self._closed:
                raise setup_error("closed", operation=_OPERATION, detail="the client was closed")
            if self._is_out_of_step:
                await self._renew(ends)
            return await self._exchange(payload, len(commands), ends)

    async def greet(self, ends: float) -> None:
        """Runs the commands of the greeting. Raises the first error reply."""
        if self._greeting:
            payload = b"".join(map(_native.kv.encode_command, self._greeting))
            async with self._lock:
                raise_first(await self._exchange(payload, len(self._greeting), ends))

    async def layout(self, ends: float) -> bytes:
        return await call_stream(self.session, LAYOUT_METHOD, self._stream, seconds_left(ends))

    async def close(self) -> None:
        closed, self._closed = self._closed, True
        if not closed and not self._is_out_of_step:
            await self._end(self._stream)
        if self._owns:
            await self.session.close()

    async def _end(self, stream: bytes) -> None:
        if not self.session.closed:
            with contextlib.suppress(VerbenaError):  # the store removes the stream with the session
                await self.session.call(CLOSE_METHOD, stream, timeout_s=_CLOSE_TIMEOUT_S)

    async def _renew(self, ends: float) -> None:
        if not self._state.is_fresh:
            detail = "a command failed after others had changed the connection's state"
            raise setup_error("closed", operation=_OPERATION, detail=detail)
        self._begin()
        if self._greeting:
            payload = b"".join(map(_native.kv.encode_command, self._greeting))
            raise_first(await self._exchange(payload, len(self._greeting), ends))

    async def _exchange(self, payload: bytes, count: int, ends: float) -> list[Any]:
        self._is_out_of_step = True
        replies: list[Any] = []
        try:
            self._unread += await send_resp(self.session, self._stream, payload, seconds_left(ends))
            while True:
                some, used = _native.kv.decode(self._unread, count - len(replies))
                self._unread = self._unread[used:]
                replies += some
                if len(replies) == count:
                    break
                self._unread += await call_stream(
                    self.session, RECEIVE_METHOD, self._stream, seconds_left(ends)
                )
        except BaseException as error:
            if isinstance(error, VerbenaError) and error.code == "closed":
                self._is_out_of_step = False  # what the store has closed stays closed
            else:
                # At once: a command that blocks there takes nothing any longer.
                self._ending = asyncio.ensure_future(self._end(self._stream))
            raise
        self._is_out_of_step = False
        return replies


async def open_session(access: Access, address: str) -> transport.Session:
    return await transport.connect(
        address, secret=access.secret, wire=access.wire, tls=access.tls, timeout_s=access.timeout_s
    )


class AsyncNodes:
    """Performs the steps of route(). Sessions with other nodes are opened when they are needed."""

    def __init__(self, home: AsyncNode, access: Access, greeting: Sequence[Command]) -> None:
        self._home = home
        self._access = access
        self._greeting = greeting
        self._others: dict[str, asyncio.Task[AsyncNode]] = {}
        self.slots = SlotMap()

    async def perform(self, steps: Generator[Step, Any, list[Any]], ends: float) -> list[Any]:
        """Drives route() to its end."""
        answer: Any = None
        try:
            while True:
                answer = await self._perform(steps.send(answer), ends)
        except StopIteration as end:
            replies: list[Any] = end.value
            return replies

    async def close(self) -> None:
        for address in list(self._others):
            await self._drop(address)

    async def _perform(self, step: Step, ends: float) -> Any:
        if isinstance(step, Requests):
            if len(step.groups) == 1:
                ((address, commands),) = step.groups
                return [await self._run(address, commands, ends)]
            work = [self._run(address, commands, ends) for address, commands in step.groups]
            return await asyncio.gather(*work)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            await self._load_map(ends)
        return None

    async def _run(self, address: str, commands: Sequence[Command], ends: float) -> list[Any]:
        try:
            return await (await self._node(address)).run(commands, ends)
        except VerbenaError as error:
            if address != HOME:  # it may have been replaced: the next command asks the others
                self.slots.is_stale = True
                if isinstance(error, ConnectionError):
                    await self._drop(address)
            raise

    async def _load_map(self, ends: float) -> None:
        failure: VerbenaError | None = None
        for address in [HOME, *self.slots.nodes]:
            try:
                (reply,) = await (await self._node(address)).run([("CLUSTER", "SHARDS")], ends)
            except VerbenaError as error:
                failure = error
                continue
            if isinstance(reply, Exception):
                raise reply
            return self.slots.load(reply)
        assert failure is not None
        raise failure

    async def _node(self, address: str) -> AsyncNode:
        if address == HOME:
            return self._home
        task = self._others.get(address)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._others[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(task)

    async def _open(self, address: str) -> AsyncNode:
        node = AsyncNode(await open_session(self._access, address), self._greeting, owns=True)
        try:
            await node.greet(time.monotonic() + (self._access.timeout_s or float("inf")))
        except BaseException:
            await node.close()
            raise
        return node

    async def _drop(self, address: str) -> None:
        task = self._others.pop(address, None)
        if task is not None:
            with contextlib.suppress(VerbenaError, CommandError):
                await (await task).close()


def seconds_left(ends: float) -> float | None:
    """Until `ends`; None: no limit. TimedOutError if it has passed."""
    if ends == float("inf"):
        return None
    left = ends - time.monotonic()
    if left <= 0:
        raise setup_error("call_timeout", operation=_OPERATION, detail="no answer in time")
    return left
