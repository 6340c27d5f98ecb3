"""MONITOR: clients that receive a line for every command."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client

_SECRET = frozenset({b"AUTH", b"HELLO", b"ACL", b"CONFIG"})  # they may hold passwords


class Monitors:
    """`on_change` is called when a client is added or removed."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._clients: dict[int, Client] = {}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, client: Client) -> None:
        client.monitors = True
        self._clients[client.id] = client
        self._on_change()

    def forget(self, client: Client) -> None:
        if self._clients.pop(client.id, None) is not None:
            client.monitors = False
            self._on_change()

    def write(self, client: Client, argv: list[bytes]) -> None:
        if argv[0].upper() in _SECRET:
            return
        where = f"{client.native.database} {client.native.address}"
        arguments = " ".join(quoted(argument) for argument in argv)
        line = f"+{time.time():.6f} [{where}] {arguments}\r\n".encode()
        for watcher in self._clients.values():
            watcher.native.write(line)


_ESCAPES = {10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b", 34: '\\"', 92: "\\\\"}


def quoted(argument: bytes) -> str:
    """Returns the argument in quotes, with unprintable bytes escaped."""
    text = "".join(
        _ESCAPES.get(value) or (chr(value) if 32 <= value < 127 else f"\\x{value:02x}") for value in argument
    )
    return f'"{text}"'
