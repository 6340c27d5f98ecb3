"""Limits of clients (client-output-buffer-limit, timeout): on output that they do not read, and on idle
time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena.kv.server.client_info import kind

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.server.clients import Client

_EVERY_MS = 1000


@dataclass(frozen=True)
class Limit:
    hard_bytes: int  # 0: no bound
    soft_bytes: int
    soft_seconds: int


class OutputLimits:
    """`all` returns every client, `known` those that Python knows; `on_change` is called after a change of
    the limits."""

    def __init__(
        self,
        engine: _native.kv.Engine,
        *,
        all: Callable[[], list[Client]],
        known: Callable[[], Collection[Client]],
        on_change: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._all = all
        self._known = known
        self._on_change = on_change
        self.idle_timeout_s = 0  # 0: no limit
        self.by_class = {
            "normal": Limit(0, 0, 0),
            "replica": Limit(256 << 20, 64 << 20, 60),
            "pubsub": Limit(32 << 20, 8 << 20, 60),
        }
        self._next_ms = 0

    def hard_limit(self, name: str) -> int:
        return self.by_class[name].hard_bytes

    def apply(self, client: Client) -> None:
        """Sets a client's limit in the engine, after its class or the limits have changed."""
        client.native.out_limit = self.by_class[kind(client)].hard_bytes

    def apply_all(self) -> None:
        for client in self._all():
            self.apply(client)
        self._on_change()

    def tick(self, now_ms: int) -> None:
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        soft = any(limit.soft_bytes for limit in self.by_class.values())
        clients = self._all() if self.idle_timeout_s else list(self._known())
        for client in clients:
            native = client.native
            idle_ms = now_ms - native.last_ms
            if self.idle_timeout_s and idle_ms > self.idle_timeout_s * 1000 and self._may_be_idle(client):
                native.close(at_once=True)
            elif soft:
                self._check_soft(client, now_ms)

    def _may_be_idle(self, client: Client) -> bool:
        return not (client.is_subscriber or client.native.blocked or client.monitors or client.is_replica)

    def _check_soft(self, client: Client, now_ms: int) -> None:
        limit = self.by_class[kind(client)]
        if not limit.soft_bytes or client.native.pending_out <= limit.soft_bytes:
            client.over_soft_limit_ms = 0
        elif not client.over_soft_limit_ms:
            client.over_soft_limit_ms = now_ms
        elif now_ms - client.over_soft_limit_ms >= limit.soft_seconds * 1000:
            self._engine.count_output_disconnection()
            client.native.close(at_once=True)
