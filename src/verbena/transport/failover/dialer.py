"""The client end of sessions: the handshake, the first link, and the replacement of lost links."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeVar

from verbena import _threads
from verbena.errors import RejectedError, VerbenaError, setup_error
from verbena.transport.address import HostPort, parse_host_port
from verbena.transport.blocking.handlers import InThread
from verbena.transport.failover.links import dial_link
from verbena.transport.failover.peer_exit import ExitWatch
from verbena.transport.failover.policy import Action, Dial, Failover, GiveUp, LinkState, Probe
from verbena.transport.handshake import exchange as hello_io
from verbena.transport.handshake.agreement import Agreement, Authentication
from verbena.transport.handshake.hello import ClientHello
from verbena.transport.handshake.link_token import PROBE, LinkRefusal, LinkRefusalReason
from verbena.transport.handshake.principal import principal_of
from verbena.transport.handshake.tls import handshake_error, peer_identity
from verbena.transport.loop_events import LoopEvents
from verbena.transport.node import Node
from verbena.transport.session import Handler, Session
from verbena.transport.shared_nodes import Lease

_OPENING_AT_ONCE = 64  # sessions with one peer: more would only wait for each other
_HANG_UPS = 4
_HANG_UP_DELAY_S = 0.05

T = TypeVar("T")


class Dialer:
    """Opens one session and keeps it linked as the Failover policy decides. Runs on the control thread."""

    def __init__(
        self,
        node: Node,
        address: str,
        *,
        tls: ssl.SSLContext | None,
        wire: str | None,
        authentication: Authentication | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.node = node
        self.address: HostPort = parse_host_port(address)
        self._tls = tls
        self._authentication = authentication or node.authentication
        self._lease = lease
        self._demanded = wire
        self._session: Session | None = None
        self._policy: Failover | None = None
        self._wires: dict[str, str] = {}
        self._attempt = 0
        self._wake = asyncio.Event()
        self._lost: list[tuple[str, str]] = []
        self._closing = False
        self._first: asyncio.Future[None] | None = None
        self._died: asyncio.Future[None] | None = None  # the peer's process has ended
        self._exit_watch: ExitWatch | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(
        self,
        handlers: Mapping[str, Handler | InThread],
        events: LoopEvents | None,
        timeout_s: float | None = None,
    ) -> Session:
        """Opens the session on the best wire that works. Raises errors of the handshake or the wires;
        connect_timeout after `timeout_s`, without which only the limits of the steps apply."""
        try:
            return await asyncio.wait_for(self._open_in_turn(handlers, events), timeout_s)
        except VerbenaError:
            raise  # some of these are TimeoutErrors too
        except (asyncio.TimeoutError, TimeoutError) as error:
            if timeout_s is None:
                raise
            history = self._policy.describe_history() if self._policy is not None else ""
            detail = ": ".join(filter(None, (f"no session within {timeout_s:g} s", history)))
            raise setup_error(
                "connect_timeout", operation="connect", peer=str(self.address), detail=detail
            ) from error

    async def _open_in_turn(
        self, handlers: Mapping[str, Handler | InThread], events: LoopEvents | None
    ) -> Session:
        turns = self.node._opening.setdefault(str(self.address), asyncio.Semaphore(_OPENING_AT_ONCE))
        async with turns:
            return await self._open(handlers, events)

    async def _open(self, handlers: Mapping[str, Handler | InThread], events: LoopEvents | None) -> Session:
        settings = self.node.settings
        agreement = await self._hello()
        offers = {wire.name: wire.address for wire in agreement.wires}
        wires = [
            name for name in self.node.wires.names if name in offers and self._is_usable(name, agreement)
        ]
        if self._demanded is not None and self._demanded not in wires:
            raise self._not_offered(self._demanded, offers)
        self._wires = offers
        self._policy = Failover(
            wires,
            peer_boot_epoch=agreement.peer_boot_epoch,
            connection_retries=settings.connection_retries,
            retry_delay_ms=settings.retry_delay_ms,
            resume_timeout_s=agreement.resume_timeout_s,
            jitter=random.random,
            demanded=self._demanded,
            first_rest_s=settings.upgrade_delay_ms / 1000,
            max_rest_s=settings.upgrade_delay_max_ms / 1000,
        )
        if self.node._closed:  # during the handshake: close() would miss the new session
            raise self._closed_error()
        session = Session(
            self.node,
            agreement,
            peer=str(self.address),
            handlers=handlers,
            events=events,
            principal=principal_of(
                certificate=agreement.peer_identity,
                has_secret=bool(self._authentication.secret),
                process=None,  # the kernel vouches for the client to the server only
            ),
        )
        session._supervisor, session._lease = self, self._lease
        self._session = session
        self._first = asyncio.get_running_loop().create_future()
        self._died = asyncio.get_running_loop().create_future()
        self._exit_watch = ExitWatch(agreement.peer_process, agreement.peer_boot_epoch, self._on_peer_exit)
        self._task = asyncio.ensure_future(self._run(session, self._policy))
        self._task.add_done_callback(self._on_task_done)
        try:
            await self._first
        except BaseException:
            await session._close(notify_peer=False)
            raise
        return session

    def link_lost(self, wire: str, reason: str) -> None:
        self._lost.append((wire, reason))
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._close_exit_watch()
        if self._first is not None and not self._first.done():
            self._first.set_exception(self._closed_error())
            self._first.exception()  # marks it as retrieved if no task waits for it
        if self._task is not None:
            self._task.cancel()

    def _on_peer_exit(self) -> None:
        assert self._died is not None
        self._died.set_result(None)
        self._wake.set()

    def _close_exit_watch(self) -> None:
        if self._exit_watch is not None:
            self._exit_watch.close()

    def _closed_error(self) -> VerbenaError:
        detail = "the node was closed, or the session was, before it had a link"
        return setup_error("closed", operation="connect", peer=str(self.address), detail=detail)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Reports an unexpected error of the task; errors after close() are ignored."""
        self._close_exit_watch()
        if task.cancelled() or (error := task.exception()) is None or self._closing:
            return
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
            return
        context = {"message": f"the session with {self.address} is no longer maintained", "exception": error}
        task.get_loop().call_exception_handler(context)

    def _is_usable(self, name: str, agreement: Agreement) -> bool:
        return agreement.same_host or name != "shm"

    def _not_offered(self, wire: str, offers: Mapping[str, str]) -> VerbenaError:
        reason = self.node.wires.reasons.get(wire)
        here = f"this end cannot open it: {reason}" if reason else ""
        there = "" if wire in offers else f"the peer offers {', '.join(offers)}"
        detail = f"{wire} was requested; {here or there or 'the peer is on another host'}"
        return setup_error("no_common_wire", operation="connect", peer=str(self.address), detail=detail)

    async def _hello(self) -> Agreement:
        """A peer that hangs up before it answers has too many handshakes at the moment: tries again."""
        attempt = 0
        while True:
            reader, writer = await self._open_control()
            hello = self._make_hello("open", writer)
            try:
                return await hello_io.dial(reader, writer, hello, timeout_s=self.node.settings.timeout_s)
            except RejectedError:
                if hello.answered or attempt == _HANG_UPS:
                    raise
            await asyncio.sleep(_HANG_UP_DELAY_S * 2**attempt * random.uniform(0.5, 1.5))
            attempt += 1

    async def _probe(self, until: float) -> int | None:
        """Returns the peer's boot epoch; None if it does not respond in time."""
        with contextlib.suppress(VerbenaError):
            return await self._run_until(until, self._fetch_boot_epoch())
        return None

    async def _fetch_boot_epoch(self) -> int:
        reader, writer = await self._open_control()
        hello = self._make_hello("probe", writer)
        reply = await hello_io.probe(reader, writer, hello, timeout_s=self.node.settings.timeout_s)
        return reply.boot_epoch

    async def _run_until(self, until: float, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` until the deadline; connect_timeout afterwards, so that the policy decides again.
        peer_died as soon as the peer's process has ended."""
        assert self._died is not None
        left_s = None if until == math.inf else max(0.0, until - asyncio.get_running_loop().time())
        task = asyncio.ensure_future(work)
        # After close() no task waits for the result of the dial.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        ends: set[asyncio.Future[Any]] = {task, self._died}
        try:
            await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})  # until it has closed what it opened
        if not task.cancelled():
            return task.result()
        code, detail = "connect_timeout", "the time for a link is over"
        if self._died.done():
            code, detail = "peer_died", ""
        raise setup_error(code, operation="dial", peer=str(self.address), detail=detail)

    def _make_hello(self, purpose: Literal["open", "probe"], writer: asyncio.StreamWriter) -> ClientHello:
        return ClientHello(
            self.node.info,
            auth=self._authentication,
            wires=self.node.wires.names,
            purpose=purpose,
            secure=self._tls is not None,
            peer=str(self.address),
            peer_identity=peer_identity(writer.get_extra_info("ssl_object")),
        )

    async def _open_control(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.host, self.address.port
        timeout_s = self.node.settings.timeout_s
        dialled = asyncio.open_connection(
            host, port, ssl=self._tls, server_hostname=host if self._tls is not None else None
        )
        try:
            return await asyncio.wait_for(dialled, timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            detail = f"no answer within {timeout_s:g} s"
            raise setup_error(
                "connect_timeout", operation="connect", peer=str(self.address), detail=detail
            ) from error
        except ssl.SSLError as error:
            raise handshake_error(error, peer=str(self.address)) from error
        except OSError as error:
            raise setup_error(
                "unreachable",
                operation="connect",
                peer=str(self.address),
                detail=error.strerror or str(error),
                errno=error.errno,
            ) from error

    # Keeping the link

    async def _run(self, session: Session, policy: Failover) -> None:
        assert self._died is not None
        loop = asyncio.get_running_loop()
        settings = self.node.settings
        first_s = (settings.timeout_s + settings.retry_delay_ms / 1000) * (settings.connection_retries + 1)
        action: Action = policy.start(loop.time(), timeout_s=first_s * max(1, len(self._wires)))
        has_died = False
        while not isinstance(action, GiveUp) and not self._closing:
            if self._died.done() and not has_died:
                has_died = True
                action = policy.peer_died(loop.time())
            elif isinstance(action, Dial):
                action = await self._dial(session, policy, action)
            elif isinstance(action, Probe):
                action = policy.probed(await self._probe(action.until), loop.time())
            else:
                if policy.state is LinkState.UNAVAILABLE and session.state is not policy.state:
                    session._set_state(LinkState.UNAVAILABLE, None, policy.describe_history())
                action = await self._wait(policy, action.until)
        if isinstance(action, GiveUp) and action.reason != "closed":
            error = setup_error(
                action.reason,
                operation="keep the session",
                peer=str(self.address),
                detail=policy.describe_history(),
            )
            if self._first is not None and not self._first.done():
                self._first.set_exception(error)
            await session._fail(error)

    async def _wait(self, policy: Failover, until: float) -> Action:
        loop = asyncio.get_running_loop()
        timeout_s = None if until == math.inf else max(0.0, until - loop.time())
        if not self._lost:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout_s)
        self._wake.clear()
        return self._report_losses(policy) or policy.tick(loop.time())

    def _report_losses(self, policy: Failover) -> Action | None:
        action: Action | None = None
        while self._lost:
            wire, reason = self._lost.pop(0)
            action = policy.link_lost(wire, reason, asyncio.get_running_loop().time())
        return action

    async def _dial(self, session: Session, policy: Failover, action: Dial) -> Action:
        loop = asyncio.get_running_loop()
        name = action.wire
        try:
            if self.node._is_resting(name):
                raise setup_error("drill", operation="dial")
            if action.background and not await self._run_until(math.inf, self._is_reachable(name)):
                raise setup_error(
                    "unreachable", operation="dial", detail="the better wire does not answer yet"
                )
            self._attempt += 1
            async with session._changing:
                dialled = dial_link(session, self.node.wires[name], self._address_of(name), self._attempt)
                link = await self._run_until(action.until, dialled)
                session._take_link(link, self._reason_for(name, policy))
        except VerbenaError as error:
            if action.background and session._link is None:
                # The better wire failed during the change-over, after the former link was closed.
                session._set_state(LinkState.DISCONNECTED, None, f"{name}: {error.what}")
                policy.link_lost(policy.wire or name, error.code, loop.time())
            session._log(
                "dial_failed", wire=name, reason=error.code, detail=error.detail, attempt=self._attempt
            )
            return policy.dial_failed(name, error.code, loop.time())
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        return policy.connected(name, loop.time())

    async def _is_reachable(self, name: str) -> bool:
        """Returns whether a better wire works. Sends a probe and leaves the current link as it is."""
        wire = self.node.wires[name]
        qp = wire.create_qp()
        try:
            connection = await wire.context.connect(
                qp, self._address_of(name), private_data=PROBE, timeout_s=self.node.settings.timeout_s
            )
            connection.disconnect()
        except VerbenaError as error:
            if not isinstance(error, RejectedError) or error.code != "rejected":
                return False
            # The peer rejected the probe, so it is reachable. A disabled wire would also reject the link.
            return LinkRefusal.decode(error.private_data).reason is not LinkRefusalReason.DRILL
        finally:
            await _threads.workers.run(wire.close_qp, qp)
        return True

    def _address_of(self, wire: str) -> str:
        address = self._wires[wire]
        return f"{self.address.bracketed}{address}" if address.startswith(":") else address

    def _reason_for(self, wire: str, policy: Failover) -> str:
        if self._demanded == wire:
            return "requested by this program"
        tried = {entry.wire: entry.reason for entry in policy.history if entry.reason}
        skipped = [
            f"{name}: {tried.get(name) or self.node.wires.reasons.get(name) or 'the peer does not offer it'}"
            for name in self.node.settings.wires[: self.node.settings.wires.index(wire)]
        ]
        return "; ".join(skipped) or "the best both have"
