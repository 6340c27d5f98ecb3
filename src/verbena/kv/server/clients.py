"""A client's state that only Python has: its user, its transaction, its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.acl import User
    from verbena.kv.server.tracking import TrackingOptions

NO_STREAM = (0, 0)


class Client:
    """One connection. `native` is the engine's side of it: its buffers and counters."""

    def __init__(self, native: _native.kv.Client, user: User) -> None:
        self.native = native
        self.id = native.id
        self.stream = native.session_stream  # session and number of a stream; NO_STREAM: it is no stream
        self.user = user
        self.authenticated = user.needs_no_password
        self.password_hash = ""  # of the password with which it authenticated
        self.by_principal = False  # kv.session_users gave it its user, without a password
        self.is_replica = False  # the stream of a replica, which follows the log
        # A transaction: commands that wait for EXEC; None: there is none.
        self.queue: list[list[bytes]] | None = None
        self.queue_failed = False  # a command could not be queued: EXEC will fail
        self.watching = False
        self.watch_failed = False  # a watched key has changed: EXEC will return null
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()
        self.monitors = False
        self.replies_off = False  # CLIENT REPLY OFF
        self.skip_replies = 0  # CLIENT REPLY SKIP: 2 now, 1 while the next command runs
        self.no_evict = self.no_touch = False
        self.tracking: TrackingOptions | None = None  # None: it does not track keys
        self.library_name = self.library_version = ""
        self.over_soft_limit_ms = 0  # when its output exceeded the soft limit; 0: it does not

    @property
    def subscriptions(self) -> int:
        return len(self.channels) + len(self.patterns) + len(self.shard_channels)

    @property
    def is_subscriber(self) -> bool:
        return bool(self.channels or self.patterns or self.shard_channels)

    @property
    def is_resp2_subscriber(self) -> bool:
        """It may run few commands only: in RESP2 messages and replies look alike."""
        return self.is_subscriber and self.native.version == 2

    def update_dispatch(self) -> None:
        """Sets in the engine whether Python checks all of this client's commands; else native ones run at
        once."""
        self.native.python_dispatch = bool(
            self.queue is not None
            or self.is_resp2_subscriber
            or not self.authenticated
            or not self.user.may_do_all
            or self.replies_off
            or self.skip_replies
            or (self.tracking is not None and (not self.tracking.broadcasts or self.tracking.skips_own))
        )
        self.native.unauthenticated = not self.authenticated
        self.native.reads_all_keys = self.login_is_valid and self.user.may_read_memory

    @property
    def login_is_valid(self) -> bool:
        """Whether it could authenticate as its user now, in the way in which it did: the user is enabled and
        still has that password, or still needs none."""
        user = self.user
        if not self.authenticated or not user.enabled:
            return False
        return self.by_principal or user.nopass or self.password_hash in user.passwords

    def log_in(self, user: User, *, password_hash: str = "", by_principal: bool = False) -> None:
        """Makes it an authenticated client of `user`."""
        self.user, self.authenticated = user, True
        self.password_hash, self.by_principal = password_hash, by_principal
        self.update_dispatch()

    def log_out(self, default: User) -> None:
        """Makes it a client that has not authenticated. It needs not do so if the default user needs no
        password."""
        self.user, self.authenticated = default, default.needs_no_password
        self.password_hash, self.by_principal = "", False
        self.update_dispatch()

    def forget_transaction(self) -> None:
        self.queue = None
        self.queue_failed = self.watch_failed = self.watching = False
