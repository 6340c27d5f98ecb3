"""The server side of sessions: accepts handshakes on a TCP port and links on every wire, and ends sessions
that do not return after a lost link."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from verbena import verbs
from verbena._closing import AsyncClosing
from verbena.errors import VerbenaError, setup_error
from verbena.transport import control
from verbena.transport.address import HostPort, parse_host_port
from verbena.transport.built_in import with_built_ins
from verbena.transport.failover.links import accept_link, refuse
from verbena.transport.failover.policy import LinkState
from verbena.transport.handshake import exchange as hello_io
from verbena.transport.handshake.agreement import Agreement, HelloClient, Offer, WireOffer
from verbena.transport.handshake.hello import ServerHello
from verbena.transport.handshake.link_token import PROBE, AttemptGuard, LinkRequest
from verbena.transport.handshake.tls import peer_identity, watch_handshakes
from verbena.transport.loop_events import LoopEvents
from verbena.transport.node import Node
from verbena.transport.observe import log
from verbena.transport.session import Handler, Session
from verbena.transport.wires import Wire

_MAX_HELLOS = 256  # concurrent handshakes; also the backlog of the listening socket

_WILDCARD = {"0.0.0.0", "::"}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

OnSession = Callable[[Session], object]


class ResumeSupervisor:
    """Supervises an accepted session: the client dials, and the session fails if it has no link for
    `resume_timeout_s`. Runs on the control thread."""

    def __init__(self, session: Session, resume_timeout_s: float) -> None:
        self.attempts = AttemptGuard()
        self._session = session
        self._resume_timeout_s = resume_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._start()

    def link_lost(self, wire: str, reason: str) -> None:
        self._start()

    def linked(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.linked()

    def _start(self) -> None:
        self.linked()
        self._timer = asyncio.get_running_loop().call_later(self._resume_timeout_s, self._give_up)

    def _give_up(self) -> None:
        detail = f"the peer did not come back within {self._resume_timeout_s:g} s"
        error = setup_error(
            "resume_timeout", operation="keep the session", peer=self._session.peer, detail=detail
        )
        control.spawn(self._session._fail(error))


class Listener(AsyncClosing):
    """Accepts sessions until it is closed. Created by listen(). An async context manager."""

    def __init__(
        self,
        node: Node,
        *,
        handlers: Mapping[str, Handler],
        events: LoopEvents | None,
        tls: ssl.SSLContext | None,
        on_session: OnSession | None,
        owns_node: bool,
    ) -> None:
        self.node = node
        self.address = ""
        self.refused: dict[str, int] = {}  # rejected handshakes and links, by error code
        self._handlers = with_built_ins(node, handlers)
        self._events = events
        self._tls = tls
        self._on_session = on_session
        self._owns_node = owns_node
        self._server: asyncio.Server | None = None
        self._offers: list[WireOffer] = []
        self._listeners: list[verbs.Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._hellos = asyncio.Semaphore(_MAX_HELLOS)
        self._closed = False

    @property
    def wires(self) -> tuple[str, ...]:
        """The wires on which it listens, best first."""
        return tuple(offer.name for offer in self._offers)

    @property
    def sessions(self) -> list[Session]:
        return self.node.sessions

    def stop_accepting(self) -> None:
        """Stops accepting new sessions. Open sessions continue and may change wires; close() ends them."""
        control.control_loop().call_soon_threadsafe(self._stop_accepting)

    async def close(self) -> None:
        """Stops accepting and closes the node's sessions, and the node if listen() created it. Idempotent."""
        await control.run(self._close())

    def close_blocking(self) -> None:
        """close() for threads."""
        control.run_blocking(self._close())

    def __repr__(self) -> str:
        return f"<Listener at {self.address}: {', '.join(self.wires)}, {len(self.sessions)} sessions>"

    # On the control thread

    async def _open(self, address: str) -> None:
        where = parse_host_port(address)
        self._check_authentication(where)
        if self._tls is not None:
            watch_handshakes(self._tls, self._on_handshake_failed)
        try:
            self._server = await asyncio.start_server(
                self._on_hello,
                where.host or None,
                where.port,
                ssl=self._tls,
                ssl_handshake_timeout=self.node.settings.timeout_s if self._tls else None,
                backlog=_MAX_HELLOS,
            )
        except OSError as error:
            raise setup_error(
                "address_in_use", operation="listen", detail=f"{where}: {error.strerror}", errno=error.errno
            ) from error
        bound = self._server.sockets[0].getsockname()
        self.address = str(HostPort(where.host or bound[0], bound[1]))
        for wire in self.node.wires:
            self._listen_on(wire, where)
        if not self._offers:
            await self._close()
            raise setup_error("no_common_wire", operation="listen", detail="no wire can listen")
        if self.node.settings.metrics_listen and not self.node._metrics_servers:
            await self.node._serve_metrics(self.node.settings.metrics_listen)
        log.event("listening", node=self.node.name, address=self.address, wires=" ".join(self.wires))

    def _check_authentication(self, where: HostPort) -> None:
        """Raises `credentials` if other machines could connect without authentication."""
        authenticates = self.node.settings.secret or (
            self._tls and self._tls.verify_mode is ssl.CERT_REQUIRED
        )
        if not authenticates and where.host not in _LOOPBACK:
            detail = f"{where} can be reached from other machines: give a secret, or require certificates"
            raise setup_error("credentials", operation="listen", detail=detail)

    def _listen_on(self, wire: Wire, where: HostPort) -> None:
        by_host = wire.name != "shm"
        host = HostPort(where.host or "0.0.0.0", 0)
        if wire.name == "ibv" and host.host in _WILDCARD and self._has_configured_gid():
            by_host = False  # the GID is the address: the client must receive it
        try:
            listener = wire.context.listen(str(host) if by_host else "")
        except VerbenaError as error:
            self.node.wires.reasons[wire.name] = error.detail or error.what
            return
        self._listeners.append(listener)
        # A client combines a bare port with the host name by which it reached this listener.
        bound_host, _, port = listener.address.rpartition(":")
        by_host = by_host or bound_host.strip("[]") in _WILDCARD
        address = f":{port}" if by_host else listener.address
        self._offers.append(WireOffer(wire.name, address))
        self._start(self._accept_links(wire, listener))

    def _has_configured_gid(self) -> bool:
        options = self.node.wires.ibv
        return options is not None and options.gid_index is not None

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        name = str(HostPort(peer[0], peer[1])) if peer else "?"
        hello = ServerHello(
            self.node.info,
            auth=self.node.authentication,
            secure=self._tls is not None,
            peer=name,
            peer_identity=peer_identity(writer.get_extra_info("ssl_object")),
        )
        async with self._hellos:
            try:
                await hello_io.serve(
                    reader,
                    writer,
                    hello,
                    self._decide,
                    timeout_s=self.node.settings.timeout_s,
                    agreed=lambda agreement: self._admit(agreement, name),
                )
            except VerbenaError as error:
                self._count(error)
                log.event("hello_refused", peer=name, reason=error.code, detail=error.detail)

    def _on_handshake_failed(self, error: VerbenaError) -> None:
        self._count(error)
        log.event("hello_refused", reason=error.code, detail=error.detail)

    def _decide(self, client: HelloClient) -> Offer:
        settings = self.node.settings
        if self._closed or len(self.node._sessions) >= settings.max_connections:
            detail = f"{settings.max_connections} sessions are open (max_connections)"
            raise setup_error("limit_exceeded", operation="accept", detail=detail)
        wires = tuple(offer for offer in self._offers if client.same_host or offer.name != "shm")
        return Offer(
            session_id=secrets.randbits(63) | 1,
            wires=wires,
            window=settings.window,
            max_message_bytes=settings.max_message_size,
            resume_timeout_s=settings.resume_timeout_s,
        )

    def _admit(self, agreement: Agreement, peer: str) -> None:
        session = Session(self.node, agreement, peer=peer, handlers=self._handlers, events=self._events)
        session._supervisor = ResumeSupervisor(session, agreement.resume_timeout_s)

    async def _accept_links(self, wire: Wire, listener: verbs.Listener) -> None:
        while not self._closed:
            try:
                request = await listener.accept()
            except VerbenaError:
                return
            self._start(self._accept_link(wire, request))

    async def _accept_link(self, wire: Wire, request: verbs.ConnectRequest) -> None:
        try:
            session, supervisor, link_request = self._verify(wire, request)
            async with session._changing:
                supervisor.attempts.accept(link_request.attempt)
                is_first = session._native.links == 0
                try:
                    link = await accept_link(session, wire, request, link_request)
                except BaseException:
                    if session._link is None and not session.closed:
                        session._set_state(LinkState.DISCONNECTED, None, f"{wire.name}: it did not come up")
                        supervisor.link_lost(wire.name, "it did not come up")
                    raise
                supervisor.linked()
                session._take_link(link, "the client chose it")
        except VerbenaError as error:
            if not _is_probe(request):
                self._count(error)
                log.event(
                    "link_refused",
                    peer=request.peer,
                    wire=wire.name,
                    reason=error.code,
                    detail=error.detail,
                )
            with contextlib.suppress(VerbenaError):
                refuse(request, error)
            return
        if is_first and self._on_session is not None:
            self._notify(self._on_session, session)

    def _verify(
        self, wire: Wire, request: verbs.ConnectRequest
    ) -> tuple[Session, ResumeSupervisor, LinkRequest]:
        if self.node._is_resting(wire.name):
            raise setup_error("drill", operation="accept")
        if _is_probe(request):
            raise setup_error("rejected", operation="accept", detail="the wire works")
        session = self.node._sessions.get(LinkRequest.session_of(request.private_data))
        if session is None or not isinstance(session._supervisor, ResumeSupervisor) or session.closed:
            raise setup_error("session_unknown", operation="accept", peer=request.peer)
        link_request = LinkRequest.decode(request.private_data, key=session._key, wire=wire.name)
        return session, session._supervisor, link_request

    def _notify(self, callback: OnSession, session: Session) -> None:
        if self._events is not None and not self._events.loop.is_closed():
            self._events.loop.call_soon_threadsafe(callback, session)
        else:
            callback(session)

    def _count(self, error: VerbenaError) -> None:
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        self.node._totals.refuse(error.code)

    def _stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_accepting()
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        for session in list(self.node._sessions.values()):
            if session.state is not LinkState.FAILED:
                await session._close()
        if self._owns_node:
            await asyncio.to_thread(self.node.close)


def _is_probe(request: verbs.ConnectRequest) -> bool:
    """Returns whether a client only tests that the wire works. It gets the answer from the rejection."""
    return request.private_data.rstrip(b"\0") == PROBE
