"""Commands that are held back with their clients: those of a pause, and those on slots that change owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client


class HeldCommands:
    """`run(client, argv)` runs a command that was held. Use it on the engine's thread, between commands."""

    def __init__(self, run: Callable[[int, list[bytes]], None]) -> None:
        self._run = run
        self._held: dict[int, tuple[Client, list[bytes]]] = {}

    def hold(self, client: Client, argv: list[bytes]) -> None:
        """Blocks the client until its command is run again."""
        client.native.blocked = True
        self._held[client.id] = (client, argv)

    def forget(self, client: int) -> None:
        self._held.pop(client, None)

    def run_all(self) -> None:
        """Runs all held commands; a command may be held again."""
        held, self._held = self._held, {}
        for client, argv in held.values():
            if client.native.here:
                client.native.blocked = False
                self._run(client.id, argv)
                if not client.native.blocked:
                    client.native.resume()
