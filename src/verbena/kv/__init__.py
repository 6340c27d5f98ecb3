"""The key-value store: a Redis-compatible server whose strings remote clients can read one-sided.
Gives Client and AsyncClient, pools for redis-py and valkey-py, and the decorator that adds a command.
May depend on verbena.transport, verbena.config and below; never on another service."""

from typing import TYPE_CHECKING

__all__ = [
    "AsyncClient",
    "Client",
    "CommandError",
    "async_redis_pool",
    "async_valkey_pool",
    "command",
    "rdma_pool",
    "redis_pool",
    "valkey_pool",
]

if TYPE_CHECKING:
    from verbena.kv.async_client import AsyncClient
    from verbena.kv.client import Client
    from verbena.kv.commands.declare import command
    from verbena.kv.connectors import async_redis_pool, async_valkey_pool, redis_pool, valkey_pool
    from verbena.kv.rdma import rdma_pool
    from verbena.kv.replies import CommandError
else:
    from verbena._lazy import importer

    __getattr__ = importer(
        __name__,
        dict.fromkeys(__all__, "connectors")
        | {
            "AsyncClient": "async_client",
            "Client": "client",
            "CommandError": "replies",
            "command": "commands.declare",
            "rdma_pool": "rdma",
        },
    )

    def __dir__() -> list[str]:
        return __all__
