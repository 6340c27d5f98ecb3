"""CLIENT PAUSE: which commands wait, and the clients that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.kv.commands.declare import find
from verbena.kv.server.held_commands import HeldCommands

if TYPE_CHECKING:
    from verbena.kv.commands.declare import Command
    from verbena.kv.server.clients import Client


class Pause:
    """`on_change` is called when a pause begins or ends; `run(client, argv)` runs a command that waited."""

    def __init__(self, on_change: Callable[[], None], run: Callable[[int, list[bytes]], None]) -> None:
        self._on_change = on_change
        self.until_ms = 0  # 0: no pause
        self._all = False
        self._held = HeldCommands(run)

    def start(self, until_ms: int, *, everything: bool) -> None:
        """Begins a pause, or makes the present one longer or stricter; never shorter."""
        self.until_ms = max(until_ms, self.until_ms)
        self._all = self._all or everything
        self._on_change()

    def end(self) -> None:
        if not self.until_ms:
            return
        self.until_ms, self._all = 0, False
        self._on_change()
        self._held.run_all()

    def holds(self, client: Client, command: Command, argv: list[bytes]) -> bool:
        """Returns whether the pause holds the command back; its client then waits for the end of the
        pause."""
        if not self.until_ms or command.name in ("CLIENT UNPAUSE", "CLIENT PAUSE") or client.is_subscriber:
            return False
        changes = command.is_write or command.name in ("PUBLISH", "SPUBLISH")
        if command.name == "EXEC":
            changes = any(found.is_write for queued in client.queue or () if (found := find(queued)))
        if not (self._all or (changes and client.queue is None) or (changes and command.name == "EXEC")):
            return False
        self._held.hold(client, argv)
        return True

    def forget(self, client: int) -> None:
        self._held.forget(client)

    def tick(self, now_ms: int) -> None:
        if self.until_ms and now_ms >= self.until_ms:
            self.end()
