"""A session: one authenticated connection to a peer that survives changes of wire.
Asyncio operations are methods of Session, blocking ones methods of `Session.sync`. When a link is replaced,
unacknowledged messages are repeated on the next one and the peer executes each once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from verbena import _native
from verbena._closing import AsyncClosing
from verbena.errors import VerbenaError, setup_error
from verbena.transport import control
from verbena.transport.failover.links import LiveLink
from verbena.transport.failover.policy import LinkState as SessionState
from verbena.transport.handshake.agreement import Agreement
from verbena.transport.loop_events import Finished, LoopEvents
from verbena.transport.observe import log
from verbena.transport.outcomes import Outcome, outcome_error
from verbena.transport.region import RemoteRegion
from verbena.transport.serving import describe
from verbena.transport.sync import (
    COMPARE_SWAP,
    FETCH_ADD,
    Progress,
    SyncOperations,
    atomic_payload,
    method_number,
)
from verbena.verbs import WcStatus

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node

_CLOSE_TIMEOUT_S = 1.0
_ROOM_RETRY_S = 0.001
OWN_PREFIX = "verbena."  # of methods that every listener serves

Handler = Callable[["Request"], "Buffer | Awaitable[Buffer | None] | None"]


@dataclass(slots=True, eq=False)  # frozen would cost as much as the rest of a short call
class Request:
    """A call of a peer, as passed to a handler."""

    session: Session = field(repr=False)
    method: str
    payload: bytes


class LinkSupervisor(Protocol):
    """Keeps a session linked: dials on the client, waits on the server. Runs on the control thread."""

    def link_lost(self, wire: str, reason: str) -> None: ...

    def close(self) -> None: ...


class Session(AsyncClosing):
    """Created by connect() and by listeners. A context manager, blocking or async."""

    def __init__(
        self,
        node: Node,
        agreement: Agreement,
        *,
        peer: str,
        handlers: Mapping[str, Handler],
        events: LoopEvents | None,
    ) -> None:
        self.node = node
        self.id = agreement.session_id
        self.peer = peer
        self.peer_name = agreement.peer_name
        self.peer_epoch = agreement.peer_boot_epoch
        self.peer_identity = agreement.peer_identity
        self.state = SessionState.DISCONNECTED
        self.wire: str | None = None
        self.reason = ""  # why this wire is used, or why there is none
        self._key = agreement.key
        self._supervisor: LinkSupervisor | None = None
        self._link: LiveLink | None = None
        self._handlers = {method_number(name): (name, handler) for name, handler in handlers.items()}
        self._events = events
        self._tasks: dict[int, asyncio.Task[None]] = {}  # running handlers, by call
        self._watchers: set[Callable[[SessionState], None]] = set()
        self._changed = threading.Condition()
        self._changing = asyncio.Lock()
        self._closed = False
        self._drilled = 0  # number of the link that a drill broke
        self._failure: VerbenaError | None = None
        settings = node.settings
        self.max_message_bytes = min(settings.max_message_size, agreement.max_message_bytes)
        self._native = node._native.add_session(
            self.id,
            peer,
            peer_epoch=self.peer_epoch,
            control=node._control_queue,
            requests=events.queue if events else None,
            max_message_bytes=self.max_message_bytes,
            max_serving=4 * settings.max_calls,
            max_waiting=4 * settings.max_calls,
            fragment_bytes=min(settings.max_send_size, 1 << 20),
        )
        self.sync = SyncOperations(self)
        self._opened_at = time.monotonic()
        self._last_wire: str | None = None
        node._totals.open(self)

    # Calls

    def call(
        self, method: str, payload: Buffer = b"", *, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, bytes]:
        """Calls the peer's handler `method` and returns its result. The handler runs once, even if the wire
        changes. RemoteError if it raised, TimedOutError after `timeout_s` (the peer cancels the call),
        BrokenLinkError if the session has failed."""
        return self._await("call", self._native.start_call, (method_number(method), payload), timeout_s)

    # One-sided

    async def read(self, remote: RemoteRegion, *, timeout_s: float | None = None) -> bytes:
        """Reads the peer's memory one-sided. DeniedError if the region was revoked or is another node's.
        Regions longer than a message buffer are read with get()."""
        if remote.length > self._native.buffer_bytes:
            self._native.check(remote, "read", 0)
            data = bytearray(remote.length)
            await self.get(remote, data)
            return bytes(data)
        return await self._await("read", self._native.start_read, (remote,), timeout_s)

    async def write(self, remote: RemoteRegion, data: Buffer, *, timeout_s: float | None = None) -> None:
        """Writes `data` at the start of the region; returns when it is in the peer's memory."""
        view = memoryview(data).cast("B")
        if view.nbytes > self._native.buffer_bytes:
            self._native.check(remote, "write", view.nbytes)
            await self.put(data, remote)
            return
        await self._await("write", self._native.start_write, (remote, view), timeout_s)

    async def compare_swap(self, remote: RemoteRegion, expected: int, desired: int) -> int:
        """Stores `desired` in the peer's 8 bytes if they equal `expected`; returns the previous value.
        Executed exactly once, even if the wire changes: the peer's node executes it, not its RDMA device."""
        return await self._atomic(remote, COMPARE_SWAP, expected, desired)

    async def fetch_add(self, remote: RemoteRegion, delta: int) -> int:
        """Adds `delta` to the peer's 8 bytes, modulo 2**64; returns the previous value. Runs exactly once."""
        return await self._atomic(remote, FETCH_ADD, delta, 0)

    async def put(self, data: Buffer, remote: RemoteRegion, *, progress: Progress | None = None) -> None:
        """Writes a buffer of any size in pipelined fragments, each verified by CRC32C at the peer. After a
        change of wire it resumes at the acknowledged offset. Calls `progress` with the acknowledged bytes."""
        await asyncio.to_thread(self.sync.put, data, remote, progress=progress)

    async def get(self, remote: RemoteRegion, into: Buffer, *, progress: Progress | None = None) -> None:
        """Fills `into` from the start of the region, in fragments like put()."""
        await asyncio.to_thread(self.sync.get, remote, into, progress=progress)

    # State

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def links(self) -> int:
        """The number of links so far. If it changed, unacknowledged one-sided writes may be lost."""
        return self._native.links

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counters and latency histograms, by wire."""
        return self._native.metrics()

    async def states(self) -> AsyncIterator[SessionState]:
        """Yields the current state, then every change, until the session fails or is closed."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[SessionState] = asyncio.Queue()

        def watch(state: SessionState) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, state)

        self._watchers.add(watch)
        try:
            state = self.state
            yield state
            while state is not SessionState.FAILED and not self._closed:
                state = await queue.get()
                yield state
        finally:
            self._watchers.discard(watch)

    def wait_for(self, state: SessionState, timeout_s: float | None = None) -> bool:
        """Blocks until the session is in `state`; False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.state is state, timeout_s)

    def break_link(self, *, rest_s: float = 0.0) -> None:
        """Breaks the current link to exercise failover. The wire is not used again for `rest_s`."""
        link = self._link
        if link is None:
            return
        if rest_s:
            self.node._rest_wire(link.wire.name, rest_s)
        self._drilled = link.number
        control.control_loop().call_soon_threadsafe(link.connection.disconnect)

    # End

    async def close(self) -> None:
        """Closes the session at both ends: waits briefly for the peer's acknowledgement. Idempotent."""
        await control.run(self._close())

    def close_blocking(self) -> None:
        """close() without asyncio."""
        control.run_blocking(self._close())

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_blocking()

    def __repr__(self) -> str:
        what = "closed" if self._closed else self.state.value
        wire = f" over {self.wire}" if self.wire else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"<Session with {self.peer_name} at {self.peer}: {what}{wire}{why}>"

    # Inside

    async def _atomic(self, remote: RemoteRegion, opcode: int, compare_add: int, swap: int) -> int:
        payload = atomic_payload(self._native, remote, opcode, compare_add, swap)
        what = (_native.transport.METHOD_ATOMIC, payload)
        answer = await self._await("atomic", self._native.start_call, what, None)
        return int.from_bytes(answer, "little")

    async def _await(
        self,
        operation: str,
        start: Callable[..., int],
        what: tuple[Any, ...],
        timeout_s: float | None,
    ) -> bytes:
        """Starts an operation and waits for its completion. If there are too many, retries until one fits."""
        events = self.node._events()
        token, future = events.expect()
        try:
            name = start(*what, events.queue, token)
            while not name:
                self._raise_if_ended(operation)
                await asyncio.sleep(_ROOM_RETRY_S)
                name = start(*what, events.queue, token)
        except BaseException:
            events.forget(token)
            raise
        events.start_polling()
        timer = None
        if timeout_s is not None:
            timer = events.loop.call_later(timeout_s, _expire, future)
        try:
            end = await future
        except asyncio.CancelledError:
            events.forget(token)
            self._native.cancel(name)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if type(end) is bytes:
            return end
        if end is None:
            events.forget(token)
            self._native.cancel(name)
            raise setup_error(
                "call_timeout", operation=operation, peer=self.peer, detail=f"no answer within {timeout_s} s"
            )
        raise self._error(operation, *end)

    def _error(self, operation: str, outcome: int, status: int, detail: bytes) -> VerbenaError:
        if outcome == Outcome.SESSION_FAILED:
            return self._session_error(operation)
        text = detail.decode("utf-8", "replace")
        return outcome_error(outcome, status, text, operation=operation, peer=self.peer)

    def _session_error(self, operation: str) -> VerbenaError:
        if self._failure is None:
            return setup_error("closed", operation=operation, peer=self.peer, detail="the session is closed")
        cause = self._failure
        return setup_error(cause.code, operation=operation, peer=self.peer, detail=cause.detail or None)

    def _raise_if_ended(self, operation: str) -> None:
        if self._native.is_over:
            raise self._session_error(operation)

    def _set_state(self, state: SessionState, wire: str | None, reason: str = "") -> None:
        with self._changed:
            self.state, self.wire, self.reason = state, wire, reason
            self._changed.notify_all()
        for watch in list(self._watchers):
            watch(state)

    # Requests of the peer, on the handlers' loop

    def _on_request(self, call: int, method: int, payload: bytes | None) -> None:
        assert self._events is not None  # only sessions with a loop get requests
        if payload is None:
            self._events.workers.cancel(self, call)
            return
        name, handler = self._handlers.get(method, ("", None))
        if handler is None:
            names = [name for name, _ in self._handlers.values() if not name.startswith(OWN_PREFIX)]
            known = ", ".join(names) or "none"
            self._native.fail(call, Outcome.NO_SUCH_METHOD, f"the peer has: {known}")
            return
        try:
            result = handler(Request(self, name, payload))
            if type(result) is not CoroutineType and not inspect.isawaitable(result):
                self._native.reply(call, b"" if result is None else result)
                return
        except Exception as error:
            self._native.fail(call, Outcome.REMOTE_FAILURE, describe(error))
            return
        self._events.workers.serve(self, call, result)

    def _cancel_handlers(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()

    # Links, on the control thread

    async def _drop_link(self, *, only: int = 0) -> None:
        """Closes the current link, or only link number `only`. Unacknowledged messages wait for the next."""
        async with self._changing:
            if only in (0, self._native.links):
                await self._drop_now()

    async def _drop_now(self) -> None:
        """_drop_link() for callers that hold `_changing`: no link is attached before the former is closed."""
        self._native.detach()
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        self._native.release_link()

    def _take_link(self, link: LiveLink, reason: str) -> None:
        self._link = link
        self._log_link(link, reason)
        link.watcher = asyncio.ensure_future(self._watch(link))
        self._set_state(SessionState.CONNECTED, link.wire.name, reason)

    async def _watch(self, link: LiveLink) -> None:
        await link.connection.wait_disconnected()
        self._native.lose_link(link.number, "the connection ended")

    async def _on_link_lost(self, number: int, status: int, why: str) -> None:
        link = self._link
        if self._closed or link is None or number != self._native.links:
            return
        wire = link.wire.name
        reason = "drill" if self._drilled == number else WcStatus(status).name if status else why
        self._log("link_lost", wire=wire, reason=reason, detail=why, attempt=number)
        self._set_state(SessionState.DISCONNECTED, None, f"{wire}: {why}")
        await self._drop_link(only=number)
        if self._supervisor is not None and self._link is None:  # else there is a new one already
            self._supervisor.link_lost(wire, reason)

    async def _fail(self, error: VerbenaError) -> None:
        """Fails the session: every waiting operation gets the error."""
        if self._closed or self._failure is not None:
            return
        self._failure = error
        await self._drop_link()
        self._native.end(error.detail or error.what)
        self._set_state(SessionState.FAILED, None, error.what)
        self._log("session_failed", reason=error.code, detail=error.detail)
        self._forget(error.code)

    async def _close(self, *, notify_peer: bool = True) -> None:
        if self._closed:
            return
        self._closed = True
        if self._supervisor is not None:
            self._supervisor.close()
        if notify_peer:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._send_close(), _CLOSE_TIMEOUT_S)
        await self._drop_link()
        self._native.end("the session was closed" if notify_peer else "the peer closed the session")
        self._set_state(self.state if self._failure else SessionState.DISCONNECTED, None, "closed")
        if self._failure is None:
            self._log("session_closed", reason="closed" if notify_peer else "closed by the peer")
        self._forget("closed" if notify_peer else "peer_closed")
        if self.node._private:
            await asyncio.to_thread(self.node.close)

    async def _send_close(self) -> None:
        """Sends the close message and waits for its acknowledgement, on a link that is being made if any."""
        async with self._changing:
            pass
        if self._link is None:
            return
        self._native.send_close()
        last = self._native.sent
        while self._native.has_link:
            if self._native.acknowledged >= last:
                return
            await asyncio.sleep(0.002)

    def _log(self, event: str, **fields: log.Field) -> None:
        log.event(event, session=f"{self.id:x}", peer=self.peer, peer_name=self.peer_name, **fields)

    def _log_link(self, link: LiveLink, reason: str) -> None:
        wire, former = link.wire.name, self._last_wire
        self._last_wire = wire
        if former is None:
            self._log("session_opened", wire=wire)
        self._log("link_up", wire=wire, reason=reason, attempt=link.number)
        if former is not None and former != wire:
            order = self.node.settings.wires
            better = order.index(wire) < order.index(former)
            self._log("step_up" if better else "step_down", wire=wire, former=former, reason=reason)

    def _forget(self, reason: str) -> None:
        if self._tasks and self._events is not None:
            self._events.loop.call_soon_threadsafe(self._cancel_handlers)
        if self.node._totals.end(self, reason):
            self.node._native.remove_session(self._native)


def _expire(future: asyncio.Future[Finished]) -> None:
    if not future.done():
        future.set_result(None)
