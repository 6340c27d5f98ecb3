"""A session: one authenticated connection to a peer that survives changes of wire.
Its operations are for asyncio; `Session.sync` is the blocking form. When a link is replaced,
unacknowledged messages are repeated on the next one and the peer executes each once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

from verbena import _native, _threads
from verbena._closing import AsyncClosing
from verbena.errors import DeniedError, VerbenaError, setup_error
from verbena.transport import control, lifetime
from verbena.transport.blocking.handlers import InThread
from verbena.transport.blocking.session import Session as BlockingSession
from verbena.transport.codecs.calls import decoded_reply, encoded_call
from verbena.transport.codecs.codec import OWN_PREFIX, Codec
from verbena.transport.failover.links import LiveLink
from verbena.transport.failover.policy import LinkState as SessionState
from verbena.transport.handshake.agreement import Agreement
from verbena.transport.handshake.hello import hkdf
from verbena.transport.handshake.principal import Principal
from verbena.transport.loop_events import Finished, LoopEvents
from verbena.transport.memory.buffers import held
from verbena.transport.memory.region import RemoteRegion
from verbena.transport.named import messages
from verbena.transport.named.client import Pull
from verbena.transport.named.messages import NameRequest
from verbena.transport.observe import log
from verbena.transport.offload import in_thread
from verbena.transport.operations import documented
from verbena.transport.outcomes import Outcome, outcome_error
from verbena.transport.requests import Offsets, Progress, atomic_payload, method_number
from verbena.transport.serving import describe
from verbena.verbs import Opcode, WcStatus

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node
    from verbena.transport.shared_nodes import Lease

_CLOSE_TIMEOUT_S = 1.0
_LOOK_AFTER_S = 0.001
_ROOM_RETRY_S = 0.001
_WATCH_RETRY_S = 1.0

Handler = Callable[["Request"], Any]  # returns a Buffer or None, or a value for the codec, or awaits it


@dataclass(slots=True, eq=False)  # frozen would cost as much as the rest of a short call
class Request:
    """A call of a peer, as passed to a handler. Handlers of verbena.sync get its blocking `session`."""

    session: Any = field(repr=False)  # Session, or verbena.sync.Session
    method: str
    payload: Any  # bytes, or a value if the session has a codec


class LinkSupervisor(Protocol):
    """Keeps a session linked: dials on the client, waits on the server. Runs on the control thread."""

    def link_lost(self, wire: str, reason: str) -> None: ...

    def close(self) -> None: ...


@documented
class Session(AsyncClosing):
    """Created by connect() and by listeners. An async context manager; `sync` is its blocking form."""

    def __init__(
        self,
        node: Node,
        agreement: Agreement,
        *,
        peer: str,
        handlers: Mapping[str, Handler | InThread],
        events: LoopEvents | None,
        principal: Principal,
    ) -> None:
        self.node = node
        self.id = agreement.session_id
        self.peer = peer
        self.peer_name = agreement.peer_name
        self.peer_epoch = agreement.peer_boot_epoch
        self.peer_identity = agreement.peer_identity
        self.principal = principal  # what the peer has proved in the handshake
        self.state = SessionState.DISCONNECTED
        self.wire: str | None = None
        self.reason = ""  # why this wire is used, or why there is none
        self._key = agreement.key
        self._supervisor: LinkSupervisor | None = None
        self._lease: Lease | None = None  # of a node that this session shares
        self._link: LiveLink | None = None
        self._handlers = {method_number(name): (name, handler) for name, handler in handlers.items()}
        self._events = events
        self._tasks: dict[int, asyncio.Task[None]] = {}  # running handlers, by call
        self._watchers: set[Callable[[SessionState], None]] = set()
        self._changed = threading.Condition()
        self._changing = asyncio.Lock()
        self._closed = False
        self._closing = lifetime.CloseOnce()
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
        self._codec: Codec | None = None  # of calls; None: bytes
        self.sync = BlockingSession(self)
        self._opened_at = time.monotonic()
        self._last_wire: str | None = None
        node._totals.open(self)

    # Operations: documented in operations.py

    def call(
        self, method: str, payload: Any = None, *, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        if self._codec is not None:
            return self._call_encoded(self._codec, method, payload, timeout_s)
        what = (method_number(method), b"" if payload is None else payload)
        return self._await("call", self._native.start_call, what, timeout_s)

    async def read(self, remote: RemoteRegion, *, timeout_s: float | None = None) -> bytes:
        length = self._native.region_length(remote, "read")
        if length > self._native.buffer_bytes:
            return await in_thread(functools.partial(self.sync._read_long, remote, timeout_s))
        if length == 0:
            return b""
        return await self._await("read", self._native.start_read, (remote,), timeout_s)

    async def read_into(
        self,
        remote: RemoteRegion,
        buffer: Buffer,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        length = self._native.buffer_length(buffer, "read_into", True)
        if length > self._native.buffer_bytes:
            work = functools.partial(self.sync.read_into, remote, buffer, timeout_s=timeout_s)
            await in_thread(work, progress)
            return
        if length == 0:
            self._native.region_length(remote, "read_into")
        else:
            with held(buffer):
                await self._await("read_into", self._native.start_read_into, (remote, buffer), timeout_s)
        if progress is not None:
            progress(length)

    async def write(
        self,
        remote: RemoteRegion,
        buffer: Buffer,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        length = self._native.buffer_length(buffer, "write", False)
        if length > self._native.buffer_bytes:
            work = functools.partial(self.sync.write, remote, buffer, timeout_s=timeout_s)
            await in_thread(work, progress)
            return
        await self._await("write", self._native.start_write, (remote, buffer), timeout_s)
        if progress is not None:
            progress(length)

    async def read_many(
        self,
        remote: RemoteRegion | Sequence[RemoteRegion],
        offsets: Offsets | None = None,
        *,
        into: Buffer,
        timeout_s: float | None = None,
    ) -> None:
        await in_thread(functools.partial(self.sync._many, False, remote, offsets, into, timeout_s))

    async def write_many(
        self,
        remote: RemoteRegion | Sequence[RemoteRegion],
        offsets: Offsets | None = None,
        *,
        buffer: Buffer,
        timeout_s: float | None = None,
    ) -> None:
        await in_thread(functools.partial(self.sync._many, True, remote, offsets, buffer, timeout_s))

    async def compare_swap(
        self, remote: RemoteRegion, expected: int, desired: int, *, timeout_s: float | None = None
    ) -> int:
        return await self._atomic(remote, Opcode.COMPARE_SWAP, expected, desired, timeout_s)

    async def fetch_add(self, remote: RemoteRegion, delta: int, *, timeout_s: float | None = None) -> int:
        return await self._atomic(remote, Opcode.FETCH_ADD, delta, 0, timeout_s)

    async def region(self, name: str, *, timeout_s: float | None = None) -> RemoteRegion:
        reply = await self._call_own(messages.REGION, NameRequest(name), timeout_s)
        return messages.parse_region(reply, self.peer)

    async def regions(self, *, timeout_s: float | None = None) -> list[str]:
        return messages.parse_names(await self._call_own(messages.REGIONS, None, timeout_s), self.peer)

    async def pull(
        self, source: str | RemoteRegion, *, into: Any = None, timeout_s: float | None = None
    ) -> Any:
        pull = Pull(source, into, timeout_s)
        while True:
            if pull.remote is None:
                pull.remote = await self.region(pull.name, timeout_s=pull.timeout_s)
            remote, target = pull.remote, pull.target(self._native)
            try:
                if target is None:
                    return await self.read(remote, timeout_s=pull.timeout_s)
                await self.read_into(remote, target, timeout_s=pull.timeout_s)
            except DeniedError as error:
                if not pull.tries_again(error):
                    raise
            else:
                return target

    async def watch(self, name: str, *, timeout_s: float | None = None) -> AsyncIterator[int]:
        version = 0
        while True:
            reply = await self._call_own(messages.WATCH, NameRequest(name, version), timeout_s)
            version = messages.parse_version(reply, self.peer)
            yield version

    # State

    @property
    def closed(self) -> bool:
        """Whether close() was called, or this process is a forked child of the session's."""
        return self._closed or self._inherited

    @property
    def links(self) -> int:
        """The number of links so far. If it changed, unacknowledged one-sided writes may be lost."""
        return self._native.links

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counters and latency histograms, by wire."""
        return self._native.metrics()

    def binding(self, label: bytes) -> bytes:
        """Returns 32 bytes that both ends derive from the handshake, different for each session and label.
        With a secret or certificates no other process knows them. A proof over them is worthless on another
        session."""
        self._check_process("binding")
        return hkdf(self._key, salt=self.id.to_bytes(8, "big"), info=b"verbena session binding: " + label)

    async def states(self) -> AsyncIterator[SessionState]:
        """Yields the current state, then every change, until the session fails or is closed."""
        self._check_process("states")
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[SessionState] = asyncio.Queue()

        def watch(state: SessionState) -> None:
            _threads.post(loop, queue.put_nowait, state)

        self._watchers.add(watch)
        try:
            state = self.state
            yield state
            while state is not SessionState.FAILED and not self._closed:
                state = await queue.get()
                yield state
        finally:
            self._watchers.discard(watch)

    def break_link(self, *, rest_s: float = 0.0) -> None:
        """Breaks the current link to exercise failover. The wire is not used again for `rest_s`."""
        self._check_process("break_link")
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
        if not self._inherited:
            await lifetime.close(self._close)

    def __repr__(self) -> str:
        if self._inherited:
            return f"<Session with {self.peer_name} at {self.peer}: of the parent process>"
        what = "closed" if self._closed else self.state.value
        wire = f" over {self.wire}" if self.wire else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"<Session with {self.peer_name} at {self.peer}: {what}{wire}{why}>"

    # Inside

    async def _call_encoded(self, codec: Codec, method: str, value: Any, timeout_s: float | None) -> Any:
        what = encoded_call(codec, method, value)
        return decoded_reply(
            codec, method, await self._await("call", self._native.start_call, what, timeout_s), self.peer
        )

    async def _call_own(self, method: str, request: NameRequest | None, timeout_s: float | None) -> bytes:
        payload = b"" if request is None else request.encode(method)
        return await self._await("call", self._native.start_call, (method_number(method), payload), timeout_s)

    async def _atomic(
        self, remote: RemoteRegion, opcode: Opcode, compare_add: int, swap: int, timeout_s: float | None
    ) -> int:
        payload = atomic_payload(self._native, remote, opcode, compare_add, swap)
        what = (_native.transport.METHOD_ATOMIC, payload)
        answer = await self._await("atomic", self._native.start_call, what, timeout_s)
        return int.from_bytes(answer, "little")

    async def _await(
        self,
        operation: str,
        start: Callable[..., int],
        what: tuple[Any, ...],
        timeout_s: float | None,
    ) -> bytes:
        """Starts an operation and waits for its completion. If there are too many, retries until one fits.
        The timeout covers both."""
        events = self.node._events()
        token, future = events.expect()
        timer = None if timeout_s is None else events.loop.call_later(timeout_s, _expire, future)
        name = 0
        try:
            while not (name := start(*what, events.queue, token)):
                self._raise_if_ended(operation)
                await asyncio.sleep(_ROOM_RETRY_S)
                if future.done():
                    break
            events.start_polling()
            end = await future
        except BaseException:
            self._abandon(events, token, name)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if type(end) is bytes:
            return end
        if end is None:
            self._abandon(events, token, name)
            detail = f"no answer within {timeout_s} s" if name else f"no room for it within {timeout_s} s"
            raise setup_error("call_timeout", operation=operation, peer=self.peer, detail=detail)
        raise self._error(operation, *end)

    def _abandon(self, events: LoopEvents, token: int, name: int) -> None:
        events.forget(token)
        if name:
            self._native.cancel(name)

    def _error(self, operation: str, outcome: int, status: int, detail: bytes) -> VerbenaError:
        if outcome == Outcome.SESSION_FAILED:
            return self._session_error(operation)
        text = detail.decode("utf-8", "replace")
        return outcome_error(outcome, status, text, operation=operation, peer=self.peer)

    def _session_error(self, operation: str) -> VerbenaError:
        if self._failure is None:
            detail = lifetime.why_closed("the session is closed")
            return setup_error("closed", operation=operation, peer=self.peer, detail=detail)
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
        if isinstance(handler, InThread):
            handler.start(self, call, name, payload)
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
        while True:
            try:
                await link.connection.wait_disconnected()
                break
            except OSError:  # no descriptor is left; silence still ends the link
                await asyncio.sleep(_WATCH_RETRY_S)
        failure = link.connection.failure
        self._native.lose_link(link.number, failure.code if failure else "the peer closed the connection")

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
        with self._changed:  # who gets the error of an operation finds a failed session
            self.state, self.wire, self.reason = SessionState.FAILED, None, error.what
        self._native.end(error.detail or error.what)
        self._set_state(SessionState.FAILED, None, error.what)
        self._log("session_failed", reason=error.code, detail=error.detail)
        self._forget(error.code)

    async def _close(self, *, notify_peer: bool = True) -> None:
        """Closes the session; a second caller waits for the first."""
        self._closed = True
        await self._closing.run(lambda: self._close_once(notify_peer))

    async def _close_once(self, notify_peer: bool) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
        if notify_peer:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._send_close(), lifetime.notify_s(_CLOSE_TIMEOUT_S))
        await self._drop_link()
        why = lifetime.why_closed("the session was closed")
        self._native.end(why if notify_peer else "the peer closed the session")
        self._set_state(self.state if self._failure else SessionState.DISCONNECTED, None, "closed")
        if self._failure is None:
            self._log("session_closed", reason="closed" if notify_peer else "closed by the peer")
        self._forget("closed" if notify_peer else "peer_closed")
        if self._lease is not None:
            await self._lease.release()

    async def _send_close(self) -> None:
        """Sends the close message and waits for its acknowledgement, on a link that is being made if any."""
        async with self._changing:
            pass
        if self._link is None:
            return
        self._native.send_close()
        last = self._native.sent
        pause_s = _LOOK_AFTER_S
        while self._native.has_link and self._native.acknowledged < last:
            await asyncio.sleep(pause_s)
            pause_s *= 1.5  # few wake-ups, also if thousands of sessions close at once

    def _log(self, event: str, **fields: log.Field) -> None:
        log.event(event, session=f"{self.id:x}", peer=self.peer, peer_name=self.peer_name, **fields)

    def _log_link(self, link: LiveLink, reason: str) -> None:
        wire, former = link.wire.name, self._last_wire
        self._last_wire = wire
        if former is None:
            self._log("session_opened", wire=wire, principal=str(self.principal))
        self._log("link_up", wire=wire, reason=reason, attempt=link.number)
        if former is not None and former != wire:
            order = self.node.settings.wires
            better = order.index(wire) < order.index(former)
            self._log("step_up" if better else "step_down", wire=wire, former=former, reason=reason)

    def _forget(self, reason: str) -> None:
        if self._tasks and self._events is not None:
            _threads.post(self._events.loop, self._cancel_handlers)
        if self.node._totals.end(self, reason):
            self.node._native.remove_session(self._native)
            for forget in list(self.node._on_session_end):
                forget(self.id)


def _expire(future: asyncio.Future[Finished]) -> None:
    if not future.done():
        future.set_result(None)
