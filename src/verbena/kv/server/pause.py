"""CLIENT PAUSE: commands that must wait, and those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.kv.commands.declare import find

if TYPE_CHECKING:
    from verbena.kv.commands.declare import Command
    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server


class Pause:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.until_ms = 0  # 0: no pause
        self._all = False
        self._waiting: dict[int, tuple[Client, list[bytes]]] = {}

    def start(self, until_ms: int, *, everything: bool) -> None:
        """A pause that goes on is made longer and stricter, never shorter."""
        self.until_ms = max(until_ms, self.until_ms)
        self._all = self._all or everything
        self._server.rule_all()

    def end(self) -> None:
        if not self.until_ms:
            return
        self.until_ms, self._all = 0, False
        self._server.rule_all()
        waiting, self._waiting = self._waiting, {}
        for client, argv in waiting.values():
            if client.native.here:
                client.native.blocked = False
                self._server.run(client.id, argv)
                if not client.native.blocked:
                    client.native.resume()

    def holds(self, client: Client, command: Command, argv: list[bytes]) -> bool:
        """True: the command waits for the end of the pause, and its client with it."""
        if not self.until_ms or command.name in ("CLIENT UNPAUSE", "CLIENT PAUSE") or client.is_subscriber:
            return False
        changes = command.is_write or command.name in ("PUBLISH", "SPUBLISH")
        if command.name == "EXEC":
            changes = any(found.is_write for queued in client.queue or () if (found := find(queued)))
        if not (self._all or (changes and client.queue is None) or (changes and command.name == "EXEC")):
            return False
        client.native.blocked = True
        self._waiting[client.id] = (client, argv)
        return True

    def forget(self, client: int) -> None:
        self._waiting.pop(client, None)

    def tick(self, now_ms: int) -> None:
        if self.until_ms and now_ms >= self.until_ms:
            self.end()
