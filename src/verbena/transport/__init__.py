"""Sessions: authenticated conversations between nodes on the best wire both have, with fallback in flight.
Gives connect(), listen(), Node, Session, Region: calls, one-sided work, bulk transfer.
May depend on verbena.verbs, verbena.config and below only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verbena.transport import control
from verbena.transport.address import DEFAULT_PORT
from verbena.transport.dialing import Dialer
from verbena.transport.failover import LinkState as SessionState
from verbena.transport.listener import Listener, OnSession
from verbena.transport.node import Node
from verbena.transport.region import Region, RemoteRegion
from verbena.transport.session import Handler, Request, Session
from verbena.transport.settings import Settings
from verbena.transport.wires import NAMES

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
    settings: Settings | None = None,
) -> Session:
    """A session with the node that listens at "host:port", on the best wire that works.
    `wire` demands one (shm, ibv, iwarp): it is used or refused, never replaced. `handlers` answer the peer's
    calls on this loop. Without a `node` the session has one of its own.
    AddressError, DeniedError (secret), TimedOutError, UnavailableError (no wire) if it fails."""
    own = node is None
    if node is None:
        node = await asyncio.to_thread(Node, _settings(settings, secret), by_loop=True)
    node._private = own
    events = node._events()
    dialer_wire = NAMES.get(wire, wire) if wire is not None else None
    try:
        return await control.run(_dial(node, address, tls, dialer_wire, handlers or {}, events))
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
    settings: Settings | None = None,
) -> Session:
    """connect() without asyncio: use the session's `sync`."""
    own = node is None
    if node is None:
        node = Node(_settings(settings, secret))
    node._private = own
    dialer_wire = NAMES.get(wire, wire) if wire is not None else None
    try:
        return control.run_blocking(_dial(node, address, tls, dialer_wire, {}, None))
    except BaseException:
        if own:
            node.close()
        raise


async def listen(
    address: str = f"127.0.0.1:{DEFAULT_PORT}",
    *,
    handlers: Mapping[str, Handler] | None = None,
    secret: bytes | str = b"",
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    on_session: OnSession | None = None,
    settings: Settings | None = None,
    native: bool = False,
) -> Listener:
    """Accepts sessions at "host:port" (port 0: one is chosen, see `listener.address`) and serves their calls
    by `handlers` on this loop: plain or async functions of a Request that return bytes.
    `native`: a thread of its own drives the node, which is better when all handlers are native."""
    owns = node is None
    if node is None:
        node = await asyncio.to_thread(Node, _settings(settings, secret), by_loop=not native)
    listener = Listener(
        node,
        handlers=handlers or {},
        events=node._events(),
        tls=tls,
        on_session=on_session,
        owns_node=owns,
    )
    try:
        await control.run(listener._open(address))
    except BaseException:
        if owns:
            await asyncio.to_thread(node.close)
        raise
    return listener


async def _dial(node: Node, address: str, tls: Any, wire: str | None, handlers: Any, events: Any) -> Session:
    return await Dialer(node, address, tls=tls, wire=wire).open(handlers, events)


def _settings(settings: Settings | None, secret: bytes | str) -> Settings:
    chosen = settings or Settings()
    if secret:
        chosen = replace(chosen, secret=secret.encode() if isinstance(secret, str) else secret)
    return chosen
