"""A keyspace as commands see it: the engine's, plus logging, notifications and waking of blocked clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands import replies
from verbena.kv.values import collections as values

if TYPE_CHECKING:
    from verbena.kv.server.blocked_clients import Blocking
    from verbena.kv.server.execution import Execution
    from verbena.kv.server.pubsub import PubSub

_native.kv.use_replies(
    replies.CommandError,
    replies.Pairs,
    replies.NullArray,
    replies.Verbatim,
    replies.Push,
    replies.NoReply,
)
_native.kv.use_kinds(values.Hash, values.List, values.Set, values.SortedSet, replies.WrongType)


class Database:
    """Implements verbena.kv.server.call.Database. Most methods are the engine's own."""

    def __init__(
        self,
        native: _native.kv.Database,
        *,
        engine: _native.kv.Engine,
        execution: Execution,
        pubsub: PubSub,
        blocking: Blocking,
    ) -> None:
        self.index = native.index
        self._engine = engine
        self._execution = execution
        self._pubsub = pubsub
        self._blocking = blocking
        self._native = native
        self.get = native.get
        self.obtain = native.obtain
        self.string = native.string
        self.any = native.any
        self.type_of = native.type_of
        self.put = native.put
        self.delete = native.delete
        self.exists = native.exists
        self.expires_ms = native.expires_ms
        self.set_expires_ms = native.set_expires_ms
        self.scan = native.scan
        self.random_key = native.random_key
        self.details = native.details
        self.clear = native.clear

    def changed(self, key: bytes, *effect: bytes, event: str = "") -> None:
        gone = self._native.changed(key)
        execution = self._execution
        if execution.logging:
            if effect:
                self._engine.log(self.index, effect)
            elif execution.command is not None and not execution.command.explicit:
                execution.verbatim = True
            else:
                self._engine.log(self.index, self.image(key))
        if self._pubsub.events:
            if event:
                self._pubsub.notify(self.index, "", event, key)
            if gone and event != "del":
                self._pubsub.notify(self.index, "g", "del", key)
        if self._blocking.by_key:
            self._blocking.signal(self.index, key)

    def log_image(self, key: bytes) -> None:
        """Logs the key as it is now."""
        self._native.changed(key)
        self._engine.log(self.index, self.image(key))

    def image(self, key: bytes) -> tuple[bytes, ...]:
        """Returns a command that restores the key's present value."""
        from verbena.kv.storage.serial import dump

        value = self._native.any(key)
        if value is None:
            return (b"DEL", key)
        expires_ms = self._native.expires_ms(key)
        if isinstance(value, bytes):
            return (b"SET", key, value, b"PXAT", b"%d" % expires_ms) if expires_ms else (b"SET", key, value)
        assert isinstance(value, values.KINDS)
        return (b"RESTORE", key, b"%d" % expires_ms, dump(value), b"ABSTTL", b"REPLACE")

    @property
    def volatile_keys(self) -> int:
        return self._native.volatile_keys

    def __len__(self) -> int:
        return len(self._native)
