"""The nodes of Dask's comms: one for each event loop that connects, while it has comms."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from verbena import Node
from verbena.config import Config, load
from verbena.transport import Settings
from verbena.transport.configured import client_tls, server_tls, settings_from

# Dask detects dead workers by their comms and has its own recovery, so broken sessions must be reported soon.
_MAX_RESUME_S = 5.0
_MAX_RETRY_DELAY_MS = 100


@dataclass(frozen=True)
class Setup:
    """The configuration from verbena.toml and the environment, adapted for Dask."""

    config: Config
    settings: Settings

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        return client_tls(self.config)

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        return server_tls(self.config)


def setup_for(connection_args: Mapping[str, Any]) -> Setup:
    """Loads the configuration. Raises RuntimeError if Dask passes an SSL context, or requires encryption and
    no TLS certificate is configured."""
    config = load()
    settings = settings_from(config)
    if connection_args.get("ssl_context") is not None:
        raise RuntimeError(
            "verbena:// does not use Dask's certificates: set them in verbena.toml, section [tls]"
        )
    wires = settings.wires
    if connection_args.get("require_encryption"):
        if settings.iwarp is None or settings.iwarp.tls is None:
            raise RuntimeError(
                "Dask requires encryption: set certificate, key and ca in verbena.toml, section [tls]"
            )
        wires = tuple(wire for wire in wires if wire != "ibv")  # RDMA devices do not encrypt
    settings = replace(
        settings,
        wires=wires,
        metrics_listen="",  # many processes cannot share one port
        resume_timeout_s=min(settings.resume_timeout_s, _MAX_RESUME_S),
        retry_delay_ms=min(settings.retry_delay_ms, _MAX_RETRY_DELAY_MS),
    )
    return Setup(config, settings)


@dataclass(eq=False)
class _Shared:
    """An event loop's node with its number of users."""

    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    node: Node | None = None
    users: int = 0


_shared: dict[tuple[asyncio.AbstractEventLoop, tuple[str, ...]], _Shared] = {}


async def borrow_node(settings: Settings) -> Node:
    """Returns the running loop's node, created if needed; the caller must return_node() it."""
    key = (asyncio.get_running_loop(), settings.wires)
    shared = _shared.setdefault(key, _Shared())
    shared.users += 1
    try:
        async with shared.making:
            if shared.node is None:
                shared.node = await asyncio.to_thread(Node, settings, by_loop=True)
            return shared.node
    except BaseException:
        _release(key, shared)
        raise


def return_node(node: Node) -> None:
    """Call it on the loop that borrowed the node. The last user closes the node, in the background."""
    for key, shared in list(_shared.items()):
        if shared.node is node:
            _release(key, shared)


def _release(key: tuple[asyncio.AbstractEventLoop, tuple[str, ...]], shared: _Shared) -> None:
    shared.users -= 1
    if shared.users == 0:
        _shared.pop(key, None)
        if shared.node is not None:
            arguments = (shared.node,)
            threading.Thread(target=_close, args=arguments, name="verbena close node", daemon=True).start()


def _close(node: Node) -> None:
    with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
        node.close()
