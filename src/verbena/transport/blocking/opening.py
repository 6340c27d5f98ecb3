"""connect() and listen() for threads without an event loop."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from verbena import _threads
from verbena.config import Config, load
from verbena.transport import control, lifetime
from verbena.transport import session as asyncio_session
from verbena.transport.blocking.handlers import BlockingHandler, InThread, in_threads
from verbena.transport.blocking.listener import Listener
from verbena.transport.blocking.session import Session
from verbena.transport.codecs.codec import Codec, codec_for
from verbena.transport.failover.dialer import Dialer
from verbena.transport.handshake.agreement import Authentication
from verbena.transport.listening import listener as asyncio_form
from verbena.transport.loop_events import LoopEvents
from verbena.transport.node import Node
from verbena.transport.opening import configured_address, listener_tls, make_dialer, node_settings
from verbena.transport.settings import Settings
from verbena.transport.shared_nodes import Lease, borrow

OnSession = Callable[[Session], object]


def connect(
    address: str,
    *,
    secret: bytes | str = b"",
    wire: str | None = None,
    handlers: Mapping[str, BlockingHandler] | None = None,
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    config: Config | Settings | None = None,
    timeout_s: float | None = None,
    codec: str | Codec = "bytes",
) -> Session:
    """As verbena.connect(), for threads: blocks until the session is open. `handlers` are plain functions
    that run in threads. Without `node` the sessions of all threads with equal settings share one node."""
    coding = codec_for(codec)
    serving = in_threads(handlers, coding)
    config = config or load()
    lease = None
    if node is None:
        settings = node_settings(config, secret)
        lease = control.open_by_blocking(borrow(settings, None), Lease.release)
    try:
        dialer = make_dialer(node, lease, address, wire, secret, tls, config)
        close = asyncio_session.Session._close
        session = control.open_by_blocking(_open(dialer, serving, timeout_s), close)
        session._codec = coding
        return session.sync
    except BaseException:
        if lease is not None:
            lifetime.close_blocking(lease.release)
        raise


def listen(
    address: str = "",
    *,
    handlers: Mapping[str, BlockingHandler] | None = None,
    secret: bytes | str = b"",
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    on_session: OnSession | None = None,
    config: Config | Settings | None = None,
    admit_unproved: bool = False,
    codec: str | Codec = "bytes",
) -> Listener:
    """As verbena.listen(), for threads: blocks until the listener is open. `handlers` and `on_session` are
    plain functions that run in threads, several at a time."""
    coding = codec_for(codec)
    serving = in_threads(handlers, coding)
    owns = node is None
    config = config or load()
    if node is None:
        node = Node(node_settings(config, secret))
    try:
        listener = asyncio_form.Listener(
            node,
            handlers=serving,
            events=control.run_blocking(_events(node)),
            tls=listener_tls(tls, config),
            on_session=None if on_session is None else lambda one: _notify(on_session, one.sync),
            owns_node=owns,
            authentication=Authentication.by(secret) if secret else None,
            admit_unproved=admit_unproved,
            codec=coding,
        )
        control.run_blocking(listener._open(address or configured_address(config)))
    except BaseException:
        if owns:
            node.close()
        raise
    return Listener(listener)


async def _open(
    dialer: Dialer, handlers: Mapping[str, InThread], timeout_s: float | None
) -> asyncio_session.Session:
    return await dialer.open(handlers, dialer.node._events() if handlers else None, timeout_s)


async def _events(node: Node) -> LoopEvents:
    """Requests arrive on the control loop, which only passes them to the threads."""
    return node._events()


def _notify(on_session: OnSession, session: Session) -> None:
    _threads.handlers.submit(lambda: on_session(session))
