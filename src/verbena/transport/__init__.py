"""Sessions: authenticated connections between nodes on the best common wire, with failover between wires.
Provides connect(), listen(), Node, Session, Pool, Region: calls, one-sided operations, bulk transfer.
May depend on verbena.verbs, verbena.config and below only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import replace

from verbena.config import Config, load
from verbena.transport import control
from verbena.transport.address import DEFAULT_PORT
from verbena.transport.configured import client_tls, listen_address, server_tls, settings_from
from verbena.transport.direct import DirectLink, DirectListener, dial
from verbena.transport.failover.dialer import Dialer
from verbena.transport.failover.policy import LinkState as SessionState
from verbena.transport.listener import Listener, OnSession
from verbena.transport.node import Node
from verbena.transport.pool import Pool, PoolStats
from verbena.transport.region import Region, RemoteRegion
from verbena.transport.session import Handler, Request, Session
from verbena.transport.settings import Settings

# Names that the configuration uses for wires.
WIRES = {"tcp": "iwarp", "rdma": "ibv"}

__all__ = [
    "DEFAULT_PORT",
    "DirectLink",
    "DirectListener",
    "Handler",
    "Listener",
    "Node",
    "Pool",
    "PoolStats",
    "Region",
    "RemoteRegion",
    "Request",
    "Session",
    "SessionState",
    "Settings",
    "connect",
    "connect_blocking",
    "dial",
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
    """Opens a session with the node at "host:port" on the best wire that works, or on `wire` only (shm, ibv,
    iwarp, quic). `handlers` serve the peer's calls on this loop. Without `node` the session creates its own
    from `config` (None: load()). Raises AddressError, DeniedError, TimedOutError or UnavailableError."""
    own = node is None
    config = config or load()
    if node is None:
        node = await asyncio.to_thread(Node, _settings(config, secret), by_loop=True)
        node._private = True
    events = node._events()
    dialer = _dialer(node, address, wire, tls or _client_tls(config))
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
    """connect() for threads, without handlers. Use the operations of the session's `sync`."""
    own = node is None
    config = config or load()
    if node is None:
        node = Node(_settings(config, secret))
        node._private = True
    dialer = _dialer(node, address, wire, tls or _client_tls(config))
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
    """Accepts sessions at "host:port" ("": as configured; port 0: any, see `listener.address`) and runs
    `handlers` on this loop: functions, plain or async, from a Request to bytes. `native`: a native thread
    drives the new node instead of this loop, which is faster if all handlers are native."""
    owns = node is None
    config = config or load()
    configured = None if isinstance(config, Settings) else config
    if node is None:
        node = await asyncio.to_thread(Node, _settings(config, secret), by_loop=not native)
    listener = Listener(
        node,
        handlers=handlers or {},
        events=node._events(),
        tls=tls or (server_tls(configured) if configured else None),
        on_session=on_session,
        owns_node=owns,
    )
    try:
        await control.run(listener._open(address or _address(configured)))
    except BaseException:
        if owns:
            await asyncio.to_thread(node.close)
        raise
    return listener


def _dialer(node: Node, address: str, wire: str | None, tls: ssl.SSLContext | None) -> Dialer:
    return Dialer(node, address, tls=tls, wire=WIRES.get(wire, wire) if wire else None)


def _client_tls(config: Config | Settings) -> ssl.SSLContext | None:
    return None if isinstance(config, Settings) else client_tls(config)


def _address(config: Config | None) -> str:
    return listen_address(config) if config else f"127.0.0.1:{DEFAULT_PORT}"


def _settings(config: Config | Settings, secret: bytes | str) -> Settings:
    settings = config if isinstance(config, Settings) else settings_from(config)
    if secret:
        settings = replace(settings, secret=secret.encode() if isinstance(secret, str) else secret)
    return settings
