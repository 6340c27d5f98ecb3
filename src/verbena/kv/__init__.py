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
    from verbena.kv.client.async_client import AsyncClient
    from verbena.kv.client.connectors import async_redis_pool, async_valkey_pool, redis_pool, valkey_pool
    from verbena.kv.client.sync_client import Client
    from verbena.kv.commands.declare import command
    from verbena.kv.commands.replies import CommandError
    from verbena.kv.frontends.valkey_rdma import rdma_pool
else:
    from verbena._lazy import importer

    __getattr__ = importer(
        __name__,
        dict.fromkeys(__all__, "client.connectors")
        | {
            "AsyncClient": "client.async_client",
            "Client": "client.sync_client",
            "CommandError": "commands.replies",
            "command": "commands.declare",
            "rdma_pool": "frontends.valkey_rdma",
        },
    )

    def __dir__() -> list[str]:
        return __all__
