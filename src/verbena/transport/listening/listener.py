"""The listener: accepts the handshakes of sessions, then their links on each wire."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from verbena import _threads, verbs
from verbena._closing import AsyncClosing
from verbena.errors import VerbenaError, setup_error
from verbena.transport import control, lifetime
from verbena.transport.address import HostPort, parse_host_port
from verbena.transport.blocking.handlers import InThread
from verbena.transport.codecs.codec import Codec
from verbena.transport.failover.links import accept_link, refuse
from verbena.transport.failover.policy import LinkState
from verbena.transport.handshake import exchange as hello_io
from verbena.transport.handshake.agreement import Agreement, Authentication, HelloClient, Offer
from verbena.transport.handshake.hello import ServerHello
from verbena.transport.handshake.link_token import PROBE, LinkRequest
from verbena.transport.handshake.peer_uid import peer_process
from verbena.transport.handshake.principal import Principal, principal_of
from verbena.transport.handshake.tls import peer_identity, watch_handshakes
from verbena.transport.listening.accepting import Acceptor
from verbena.transport.listening.built_in import with_built_ins
from verbena.transport.listening.resume import ResumeSupervisor
from verbena.transport.listening.wire_listeners import WireListeners
from verbena.transport.loop_events import LoopEvents
from verbena.transport.memory.region import Region
from verbena.transport.named.publication import Publication
from verbena.transport.named.publisher import Publisher
from verbena.transport.named.rules import Rule
from verbena.transport.node import Node
from verbena.transport.observe import log
from verbena.transport.session import Handler, Session
from verbena.transport.wires import Wire
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAX_HELLOS = 256  # unfinished handshakes; a further one replaces the oldest
_ACCEPT_RETRY_S = 0.1
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

OnSession = Callable[[Session], object]


class Listener(AsyncClosing):
    """Accepts sessions until it is closed. Created by listen(). An async context manager."""

    def __init__(
        self,
        node: Node,
        *,
        handlers: Mapping[str, Handler | InThread],
        events: LoopEvents | None,
        tls: ssl.SSLContext | None,
        on_session: OnSession | None,
        owns_node: bool,
        authentication: Authentication | None = None,
        admit_unproved: bool = False,
        codec: Codec | None = None,
    ) -> None:
        node._check_process("listen")
        self.node = node
        self.address = ""
        self.refused: dict[str, int] = {}  # rejected handshakes and links, by error code
        self._publisher = Publisher(node)
        self._handlers = {**with_built_ins(node, handlers), **self._publisher.methods}
        self._codec = codec
        self._events = events
        self._tls = tls
        self._on_session = on_session
        self._owns_node = owns_node
        self._authentication = authentication or node.authentication
        self._admits_unproved = admit_unproved
        self._acceptor = Acceptor(
            self._on_hello,
            tls=tls,
            timeout_s=node.settings.timeout_s,
            max_unfinished=_MAX_HELLOS,
            on_refused=self._on_hello_refused,
        )
        self._wire_listeners = WireListeners(node, self._acceptor, accept=self._start_accepting)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._closed = False
        self._closing = lifetime.CloseOnce()
        self._ended = threading.Event()
        self._on_closed: list[Callable[[], object]] = []

    @property
    def wires(self) -> tuple[str, ...]:
        """The wires on which it listens, best first."""
        return tuple(offer.name for offer in self._wire_listeners.offers)

    @property
    def sessions(self) -> list[Session]:
        return self.node.sessions

    def stop_accepting(self) -> None:
        """Rejects new sessions. Open sessions continue and may change wires; close() ends them."""
        self._check_process("stop_accepting")
        control.control_loop().call_soon_threadsafe(self._stop_accepting)

    def admit_unproved(self, admits: bool) -> None:
        """Sets whether peers that have proved nothing are accepted. False also closes their open sessions.
        Any thread may call it."""
        self._check_process("admit_unproved")
        control.control_loop().call_soon_threadsafe(self._set_admission, admits)

    def publish(
        self,
        name: str,
        array: Buffer | Region,
        *,
        access: Access = Access.REMOTE_READ,
        allow: Rule = None,
    ) -> Publication:
        """Offers the memory of an array, a buffer or a region to the sessions under a name, without a copy;
        element type and shape travel. A name that is in use gets the new memory, and those that watch it are
        notified. `allow`: names as in `principal.names`, or a function of the principal that returns bool or
        its Access; None: every session. Any thread may call it."""
        self._check_process("publish")
        return self._publisher.publish(name, array, access, allow)

    def unpublish(self, name: str) -> None:
        """Ends a name and the access of all peers to it; returns when no access is in progress."""
        self._check_process("unpublish")
        self._publisher.unpublish(name)

    async def close(self) -> None:
        """Stops accepting and closes the node's sessions, and the node if listen() created it. Idempotent."""
        if not self._inherited:
            await lifetime.close(self._close)

    async def serve_forever(self) -> None:
        """Waits until the listener is closed, for programs that only serve. Closes it if cancelled."""
        self._check_process("serve_forever")
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        self._on_closed.append(lambda: _threads.post(loop, _threads.finish, ended, None))
        try:
            if not self._ended.is_set():
                await ended
        except asyncio.CancelledError:
            await self.close()
            raise

    def __repr__(self) -> str:
        return f"<Listener at {self.address}: {', '.join(self.wires)}, {len(self.sessions)} sessions>"

    # On the control thread

    async def _open(self, address: str) -> None:
        where = parse_host_port(address)
        self._check_authentication(where)
        if self._tls is not None:
            watch_handshakes(self._tls, self._on_hello_refused)
        sockets = await self._wire_listeners.bind(where)
        bound = sockets[0].getsockname()
        self.address = str(HostPort(where.host or bound[0], bound[1]))
        self._acceptor.start(sockets)
        self.node._listeners.add(self)
        self._wire_listeners.start()
        if not self._wire_listeners.offers:
            await self._close()
            raise setup_error("no_common_wire", operation="listen", detail="no wire can listen")
        if self.node.settings.metrics_listen and not self.node._metrics_servers:
            await self.node._serve_metrics(self.node.settings.metrics_listen)
        log.event("listening", node=self.node.name, address=self.address, wires=" ".join(self.wires))

    def _check_authentication(self, where: HostPort) -> None:
        """Raises `credentials` if other machines could connect without authentication."""
        authenticates = self._authentication.secret or (
            self._tls and self._tls.verify_mode is ssl.CERT_REQUIRED
        )
        if not authenticates and where.host not in _LOOPBACK:
            detail = f"{where} can be reached from other machines: give a secret, or require certificates"
            raise setup_error("credentials", operation="listen", detail=detail)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_hello(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float
    ) -> None:
        peer = writer.get_extra_info("peername")
        name = str(HostPort(peer[0], peer[1])) if peer else "?"
        hello = ServerHello(
            self.node.info,
            auth=self._authentication,
            secure=self._tls is not None,
            peer=name,
            peer_identity=peer_identity(writer.get_extra_info("ssl_object")),
        )
        principal = Principal()

        def offer(client: HelloClient) -> Offer:
            nonlocal principal
            principal = self._principal(client, writer)
            return self._decide(client, principal)

        try:
            await hello_io.serve(
                reader,
                writer,
                hello,
                offer,
                timeout_s=timeout_s,
                agreed=lambda agreement: self._admit(agreement, name, principal),
            )
        except VerbenaError as error:
            self._on_hello_refused(error, name)

    def _on_hello_refused(self, error: VerbenaError, peer: str = "") -> None:
        self._count(error)
        where = {"peer": peer} if peer else {}
        log.event("hello_refused", **where, reason=error.code, detail=error.detail)

    def _principal(self, client: HelloClient, writer: asyncio.StreamWriter) -> Principal:
        """Returns the client's principal. It has proved the secret if there is one."""
        settings = self.node.settings
        return principal_of(
            certificate=client.identity,
            has_secret=bool(self._authentication.secret),
            process=peer_process(writer.get_extra_info("socket")),
            allowed_uids=settings.allow_uids,
        )

    def _decide(self, client: HelloClient, principal: Principal) -> Offer:
        settings = self.node.settings
        self._check_proof(principal)
        if self._is_stopping:
            raise setup_error("rejected", operation="accept", detail="this node accepts no new sessions")
        if self._closed or len(self.node._sessions) >= settings.max_connections:
            detail = f"{settings.max_connections} sessions are open (max_connections)"
            raise setup_error("limit_exceeded", operation="accept", detail=detail)
        wires = tuple(
            offer
            for offer in self._wire_listeners.offers
            if (client.same_host or offer.name != "shm") and offer.name not in self.node.wires.removed
        )
        return Offer(
            session_id=secrets.randbits(63) | 1,
            wires=wires,
            window=settings.window,
            max_message_bytes=settings.max_message_size,
            resume_timeout_s=settings.resume_timeout_s,
        )

    def _check_proof(self, principal: Principal) -> None:
        """Raises `credentials` for a peer that has proved nothing, unless such peers are admitted."""
        if principal.is_proved or self._admits_unproved:
            return
        peer = "the uid of the peer is not known" if principal.uid is None else f"the peer is {principal}"
        detail = (
            f"{peer}, this node has uid {os.geteuid()} and no secret: "
            "set session.secret_file, or session.allow_uids at this node"
        )
        raise setup_error("credentials", operation="accept", detail=detail)

    def _set_admission(self, admits: bool) -> None:
        self._admits_unproved = admits
        if admits:
            return
        for session in list(self.node._sessions.values()):
            # Only sessions that a listener has accepted: of those that this node has opened, the principal is
            # the server's, which needs no proof here.
            if isinstance(session._supervisor, ResumeSupervisor) and not session.principal.is_proved:
                control.spawn(session._close())

    def _admit(self, agreement: Agreement, peer: str, principal: Principal) -> None:
        session = Session(
            self.node,
            agreement,
            peer=peer,
            handlers=self._handlers,
            events=self._events,
            principal=principal,
        )
        session._codec = self._codec
        session._supervisor = ResumeSupervisor(session, agreement)

    def _start_accepting(self, wire: Wire, listener: verbs.Listener) -> None:
        self._start(self._accept_links(wire, listener))

    async def _accept_links(self, wire: Wire, listener: verbs.Listener) -> None:
        was_reported = False
        while not self._closed:
            try:
                request = await listener.accept()
            except VerbenaError:
                return
            except OSError as error:  # no descriptor is left
                if not was_reported:
                    log.event("accept_failed", wire=wire.name, reason=error.strerror or str(error))
                was_reported = True
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            was_reported = False
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
        except OSError as error:  # no descriptor is left
            log.event("link_refused", peer=request.peer, wire=wire.name, reason=error.strerror or str(error))
            with contextlib.suppress(VerbenaError):
                refuse(request, setup_error("fd_limit", operation="accept", detail=str(error)))
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
        """Calls back on the handlers' loop; not if that was closed, nor on the control thread."""
        if self._events is not None:
            _threads.post(self._events.loop, callback, session)
        else:
            _threads.handlers.submit(functools.partial(callback, session))

    def _count(self, error: VerbenaError) -> None:
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        self.node._totals.refuse(error.code)

    def _stop_accepting(self) -> None:
        self._is_stopping = True  # the port stays open: open sessions dial their links there

    async def _close(self) -> None:
        """Closes the listener; a second caller waits for the first."""
        self._closed = True
        await self._closing.run(self._close_once)

    async def _close_once(self) -> None:
        self.node._listeners.discard(self)
        self._acceptor.close()
        self._wire_listeners.close()
        for task in list(self._tasks):
            task.cancel()
        open_sessions = [one for one in self.sessions if one.state is not LinkState.FAILED]
        await lifetime.close_all([session._close() for session in open_sessions])
        self._publisher.close()
        if self._owns_node and not self.node._closing.has_begun:
            await self.node._close()
        self._ended.set()
        for notify in self._on_closed:
            notify()


def _is_probe(request: verbs.ConnectRequest) -> bool:
    """Returns whether a client only tests that the wire works. It gets the answer from the rejection."""
    return request.private_data.rstrip(b"\0") == PROBE
