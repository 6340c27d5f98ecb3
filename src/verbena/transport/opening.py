"""connect() and listen(), and the objects that they return: to be awaited, or entered with `async with`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from verbena._closing import AsyncClosing
from verbena.config import Config, load
from verbena.transport import control, lifetime
from verbena.transport.address import DEFAULT_PORT
from verbena.transport.codecs.codec import Codec, codec_for
from verbena.transport.codecs.handlers import encoding
from verbena.transport.configured import client_tls, listen_address, server_tls, settings_from
from verbena.transport.failover.dialer import Dialer
from verbena.transport.handshake.agreement import Authentication
from verbena.transport.listening.listener import Listener, OnSession
from verbena.transport.node import Node
from verbena.transport.session import Handler, Session
from verbena.transport.settings import Settings
from verbena.transport.shared_nodes import Lease, borrow, make_node

# Names that the configuration uses for wires.
WIRES = {"tcp": "iwarp", "rdma": "ibv"}

T = TypeVar("T", bound=AsyncClosing)


class Opening(Coroutine[Any, Any, T]):
    """A session or listener to be opened: `await` it, or enter it with `async with`, which also closes it."""

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    async def __aenter__(self) -> T:
        self._opened = await self._coroutine
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.close()

    # A coroutine, so that asyncio.run(), create_task(), gather() and wait_for() accept it

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()


def connect(
    address: str,
    *,
    secret: bytes | str = b"",
    wire: str | None = None,
    handlers: Mapping[str, Handler] | None = None,
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    config: Config | Settings | None = None,
    timeout_s: float | None = None,
    codec: str | Codec = "bytes",
) -> Opening[Session]:
    """Opens a session with the node at "host:port" on the best wire that works, or on `wire` only (shm, ibv,
    iwarp, quic): `await connect(…)` or `async with connect(…) as session`. `handlers` serve the peer's calls
    on this loop. Without `node` the sessions of a loop with equal settings, from `config` (None: load()),
    share one node. `codec`: what calls carry at both ends, "bytes", "numpy", "msgpack", "pickle5" or a Codec.
    Raises AddressError, DeniedError, UnavailableError or TimedOutError, at the latest after `timeout_s`
    (None: the configured limits of handshake and wires)."""
    return Opening(_connect(address, secret, wire, handlers or {}, node, tls, config, timeout_s, codec))


def listen(
    address: str = "",
    *,
    handlers: Mapping[str, Handler] | None = None,
    secret: bytes | str = b"",
    node: Node | None = None,
    tls: ssl.SSLContext | None = None,
    on_session: OnSession | None = None,
    config: Config | Settings | None = None,
    native: bool = False,
    admit_unproved: bool = False,
    codec: str | Codec = "bytes",
) -> Opening[Listener]:
    """Accepts sessions at "host:port" ("": as configured; port 0: any, see `listener.address`) and runs
    `handlers` on this loop: functions, plain or async, from a Request to bytes, or to a value if there is a
    `codec`, as in connect(). `await listen(…)` or `async with listen(…) as listener`. Without `node` the
    listener has a node of its own, from `config` (None: load()). `native`: a native thread drives it instead
    of this loop, which is faster if all handlers are native. `admit_unproved`: without a secret, other users
    of this host are accepted too; handlers must check `session.principal`."""
    return Opening(
        _listen(address, handlers or {}, secret, node, tls, on_session, config, native, admit_unproved, codec)
    )


async def _connect(
    address: str,
    secret: bytes | str,
    wire: str | None,
    handlers: Mapping[str, Handler],
    node: Node | None,
    tls: ssl.SSLContext | None,
    config: Config | Settings | None,
    timeout_s: float | None,
    codec: str | Codec,
) -> Session:
    coding = codec_for(codec)
    config = config or load()
    lease = None
    if node is None:
        settings, loop = node_settings(config, secret), asyncio.get_running_loop()
        lease = await control.open_by(borrow(settings, loop), Lease.release)
    try:
        dialer = make_dialer(node, lease, address, wire, secret, tls, config)
        opening = dialer.open(encoding(handlers, coding), dialer.node._events(), timeout_s)
        session = await control.open_by(opening, Session._close)
        session._codec = coding
        return session
    except BaseException:
        if lease is not None:
            await lifetime.close(lease.release)
        raise


async def _listen(
    address: str,
    handlers: Mapping[str, Handler],
    secret: bytes | str,
    node: Node | None,
    tls: ssl.SSLContext | None,
    on_session: OnSession | None,
    config: Config | Settings | None,
    native: bool,
    admit_unproved: bool,
    codec: str | Codec,
) -> Listener:
    coding = codec_for(codec)
    owns = node is None
    config = config or load()
    if node is None:
        settings = node_settings(config, secret)
        node = await control.open_by(make_node(settings, by_loop=not native), Node._close)
    try:
        listener = Listener(
            node,
            handlers=encoding(handlers, coding),
            events=node._events(),
            tls=listener_tls(tls, config),
            on_session=on_session,
            owns_node=owns,
            authentication=Authentication.by(secret) if secret else None,
            admit_unproved=admit_unproved,
            codec=coding,
        )
        await control.run(listener._open(address or configured_address(config)))
    except BaseException:
        if owns:
            await lifetime.close(node._close)
        raise
    return listener


# Shared with the blocking form


def make_dialer(
    node: Node | None,
    lease: Lease | None,
    address: str,
    wire: str | None,
    secret: bytes | str,
    tls: ssl.SSLContext | None,
    config: Config | Settings,
) -> Dialer:
    """Returns the dialer of one session, which uses `node`, or that of the lease and returns it."""
    if node is None:
        assert lease is not None
        node = lease.node
    node._check_process("connect")
    if tls is None and not isinstance(config, Settings):
        tls = client_tls(config)
    return Dialer(
        node,
        address,
        tls=tls,
        wire=WIRES.get(wire, wire) if wire else None,
        authentication=Authentication.by(secret) if secret else None,
        lease=lease,
    )


def listener_tls(tls: ssl.SSLContext | None, config: Config | Settings) -> ssl.SSLContext | None:
    return tls or (None if isinstance(config, Settings) else server_tls(config))


def configured_address(config: Config | Settings) -> str:
    return f"127.0.0.1:{DEFAULT_PORT}" if isinstance(config, Settings) else listen_address(config)


def node_settings(config: Config | Settings, secret: bytes | str) -> Settings:
    settings = config if isinstance(config, Settings) else settings_from(config)
    if secret:
        settings = replace(settings, secret=secret.encode() if isinstance(secret, str) else secret)
    return settings
