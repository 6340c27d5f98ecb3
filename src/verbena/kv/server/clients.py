"""A client's state that only the program knows: its user, its transaction, its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.acl import User
    from verbena.kv.server.tracking import Wish


class Client:
    """One connection. `native` are its bytes, and what the engine knows of it."""

    def __init__(self, native: _native.kv.Client, user: User) -> None:
        self.native = native
        self.id = native.id
        self.user = user
        self.authenticated = user.needs_no_password
        # A transaction: commands that wait for EXEC; None: there is none.
        self.queue: list[list[bytes]] | None = None
        self.spoilt = False  # a command that could not be queued: EXEC will refuse
        self.watching = False
        self.disturbed = False  # a key that it watches has changed
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()
        self.monitors = False
        self.muted = False  # CLIENT REPLY OFF
        self.skips = 0  # CLIENT REPLY SKIP: 2 now, 1 while the next command runs
        self.no_evict = self.no_touch = False
        self.tracking: Wish | None = None  # it caches what it reads, and wants to hear of changes
        self.library_name = self.library_version = ""
        self.over_soft_limit_ms = 0  # since when its output has been too long

    @property
    def subscriptions(self) -> int:
        return len(self.channels) + len(self.patterns) + len(self.shard_channels)

    @property
    def is_subscriber(self) -> bool:
        return bool(self.channels or self.patterns or self.shard_channels)

    @property
    def may_only_listen(self) -> bool:
        """In RESP2 what is pushed and what is answered look alike, so a subscriber may ask for little."""
        return self.is_subscriber and self.native.version == 2

    def rule(self) -> None:
        """Has the engine send its commands here, if there is a reason to; else native ones run at once."""
        self.native.python_dispatch = bool(
            self.queue is not None
            or self.may_only_listen
            or not self.authenticated
            or not self.user.may_do_all
            or self.muted
            or self.skips
            or (self.tracking is not None and (not self.tracking.broadcasts or self.tracking.skips_own))
        )
        self.native.unauthenticated = not self.authenticated

    def forget_transaction(self) -> None:
        self.queue = None
        self.spoilt = self.disturbed = self.watching = False
