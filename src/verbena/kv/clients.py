"""A client's state that only the program knows: its user, its transaction, its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena import _native


class Client:
    """One connection. `native` are its bytes, and what the engine knows of it."""

    def __init__(self, native: _native.kv.Client) -> None:
        self.native = native
        self.id = native.id
        self.user = "default"
        self.authenticated = True
        # A transaction: commands that wait for EXEC; None: there is none.
        self.queue: list[list[bytes]] | None = None
        self.spoilt = False  # a command that could not be queued: EXEC will refuse
        self.watching = False
        self.disturbed = False  # a key that it watches has changed
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()

    @property
    def subscriptions(self) -> int:
        return len(self.channels) + len(self.patterns) + len(self.shard_channels)

    def rule(self, default: bool = False) -> None:
        """Has the engine send its commands here, if there is a reason to; else native ones run at once."""
        self.native.ruled = bool(
            default or self.queue is not None or self.subscriptions or not self.authenticated
        )
