"""Sessions: authenticated conversations between nodes on the best wire both have, with fallback in flight.
Gives connect(), listen(), Node, Session, Region: calls, one-sided work, bulk transfer.
May depend on verbena.verbs, verbena.config and below only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import replace

from verbena.config import Config, load
from verbena.transport import control
from verbena.transport.address import DEFAULT_PORT
from verbena.transport.dialing import Dialer
from verbena.transport.failover import LinkState as SessionState
from verbena.transport.listener import Listener, OnSession
from verbena.transport.node import Node
from verbena.transport.region import Region, RemoteRegion
from verbena.transport.session import Handler, Request, Session
from verbena.transport.settings import WIRES, Settings
from verbena.transport.tls import client_context, server_context

__all__ = [
    "DEFAULT_PORT",
    "Handler",
    "Listener",
    "Node",
    "Region",
    "RemoteRegion",
    "Request",
    "Session",
    "SessionState",
    "Settings",
    "connect",
    "connect_blocking",
    "listen",
]


async def connect(
    address: str,
    *,
    secret: bytes | str = b"",
    wire: str | None = None,
    handlers: Mapping[str, Handler] | None = None,
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    config: Config | Settings | None = None,
) -> Session:
    """A session with the node that listens at "host:port", on the best wire that works.
    `wire` demands one (shm, ibv, iwarp): it is used or refused, never replaced. `handlers` answer the peer's
    calls on this loop. Without a `node` the session has one of its own, made from `config` (None: what
    verbena.toml and the environment say).
    AddressError, DeniedError (secret), TimedOutError, UnavailableError (no wire) if it fails."""
    own = node is None
    settings, client_tls, _ = _prepare(config, secret)
    if node is None:
        node = await asyncio.to_thread(Node, settings, by_loop=True)
        node._private = True
    events = node._events()
    dialer = _dialer(node, address, wire, tls or client_tls)
    try:
        return await control.run(dialer.open(handlers or {}, events))
    except BaseException:
        if own:
            await asyncio.to_thread(node.close)
        raise


def connect_blocking(
    address: str,
    *,
    secret: bytes | str = b"",
    wire: str | None = None,
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    config: Config | Settings | None = None,
) -> Session:
    """connect() without asyncio: use the session's `sync`."""
    own = node is None
    settings, client_tls, _ = _prepare(config, secret)
    if node is None:
        node = Node(settings)
        node._private = True
    dialer = _dialer(node, address, wire, tls or client_tls)
    try:
        return control.run_blocking(dialer.open({}, None))
    except BaseException:
        if own:
            node.close()
        raise


async def listen(
    address: str = "",
    *,
    handlers: Mapping[str, Handler] | None = None,
    secret: bytes | str = b"",
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    on_session: OnSession | None = None,
    config: Config | Settings | None = None,
    native: bool = False,
) -> Listener:
    """Accepts sessions at "host:port" (port 0: one is chosen, see `listener.address`; "": as configured) and
    serves their calls by `handlers` on this loop: plain or async functions of a Request that return bytes.
    `native`: a thread of its own drives the node, which is better when all handlers are native."""
    owns = node is None
    settings, _, server_tls = _prepare(config, secret)
    if node is None:
        node = await asyncio.to_thread(Node, settings, by_loop=not native)
    listener = Listener(
        node,
        handlers=handlers or {},
        events=node._events(),
        tls=tls or server_tls,
        on_session=on_session,
        owns_node=owns,
    )
    try:
        await control.run(listener._open(address or _configured_address(config)))
    except BaseException:
        if owns:
            await asyncio.to_thread(node.close)
        raise
    return listener


def _dialer(node: Node, address: str, wire: str | None, tls: ssl.SSLContext | None) -> Dialer:
    return Dialer(node, address, tls=tls, wire=WIRES.get(wire, wire) if wire else None)


def _prepare(
    config: Config | Settings | None, secret: bytes | str
) -> tuple[Settings, ssl.SSLContext | None, ssl.SSLContext | None]:
    """The node's settings, and the TLS contexts of both roles if certificates are configured."""
    client: ssl.SSLContext | None = None
    server: ssl.SSLContext | None = None
    if isinstance(config, Settings):
        settings = config
    else:
        chosen = config or load()
        settings, tls = Settings.from_config(chosen), chosen.tls
        if tls.ca:
            client = client_context(ca=tls.ca, certificate=tls.certificate or None, key=tls.key or None)
        if tls.certificate:
            server = server_context(
                certificate=tls.certificate,
                key=tls.key or None,
                ca=tls.ca or None,
                require_client_certificate=tls.require_client_certificate,
            )
    if secret:
        settings = replace(settings, secret=secret.encode() if isinstance(secret, str) else secret)
    return settings, client, server


def _configured_address(config: Config | Settings | None) -> str:
    if isinstance(config, Settings):
        return f"127.0.0.1:{DEFAULT_PORT}"
    session = (config or load()).session
    host = session.listen_address
    return f"[{host}]:{session.listen_port}" if ":" in host else f"{host}:{session.listen_port}"
