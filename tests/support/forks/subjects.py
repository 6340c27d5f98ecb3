"""The inherited objects, by name."""

from __future__ import annotations

from collections.abc import Callable

from support.forks.devices import Verbs
from support.forks.services import (
    AsyncRedisPool,
    AsyncStoreClient,
    FarArray,
    Files,
    RedisPool,
    Store,
    StoreClient,
)
from support.forks.sessions import AsyncSession, BlockingSession, Listening, Pooling
from support.forks.subject import Subject

# By name: the service it needs ("": none) and how it is made.
SUBJECTS: dict[str, tuple[str, Callable[[str], Subject]]] = {
    "session-shm": ("peer", lambda address: BlockingSession(address, "shm")),
    "session-iwarp": ("peer", lambda address: BlockingSession(address, "iwarp")),
    "session-quic": ("peer", lambda address: BlockingSession(address, "quic")),
    "session-async": ("peer", AsyncSession),
    "listener": ("peer", Listening),
    "pool": ("peer", Pooling),
    "kv.Client": ("store", StoreClient),
    "kv.AsyncClient": ("store", AsyncStoreClient),
    "redis_pool": ("store", RedisPool),
    "async_redis_pool": ("store", AsyncRedisPool),
    "kv.Server": ("", Store),
    "far.Array": ("memory-node", FarArray),
    "FileSystem": ("file-node", Files),
    "verbs-shm": ("", lambda address: Verbs(address, "shm")),
    "verbs-iwarp": ("", lambda address: Verbs(address, "iwarp")),
    "verbs-quic": ("", lambda address: Verbs(address, "quic")),
}
