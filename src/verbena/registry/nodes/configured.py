"""Nodes from the configuration."""

from __future__ import annotations

import dataclasses

from verbena.config import Config
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.service import Registry
from verbena.transport.address import HostPort
from verbena.transport.configured import client_tls, server_tls, settings_from


def nodes_settings(config: Config) -> NodesSettings:
    keys = config.registry
    return NodesSettings(
        peers=_list(keys.peers) if keys.rdma_enabled else (),
        upstreams=_list(keys.upstream),
        listen=str(HostPort(keys.rdma_listen_addr, keys.rdma_listen_port)) if keys.rdma_enabled else "",
        replicas=keys.replicas,
        replicate_synchronously=keys.replication == "sync",
        piece_timeout_s=keys.piece_timeout_ms / 1000,
        tag_lifetime_s=keys.tag_lifetime_s,
        window_bytes=keys.window_size,
        source_bytes=keys.window_size // 2,
    )


async def open_nodes(config: Config, registry: Registry) -> Nodes | None:
    """None if this registry is alone. Raises what listening raises, as for want of a secret."""
    keys = config.registry
    if not keys.rdma_enabled and not keys.upstream:
        return None
    # Whoever enables RDMA for the registry wants its devices, too, where there are any.
    network = dataclasses.replace(
        config.network, rdma_enabled=config.network.rdma_enabled or keys.rdma_enabled
    )
    settings = settings_from(dataclasses.replace(config, network=network))
    # A few nodes, and short messages: as many buffers as they can fill, not a store's ten thousand.
    buffers = settings.recv_queue_depth * (8 + 2 * len(_list(keys.peers)))
    settings = dataclasses.replace(
        settings, metrics_listen="", recv_buffer_pool_size=min(settings.recv_buffer_pool_size, buffers)
    )
    return await Nodes.open(
        registry,
        nodes_settings(config),
        transport_settings=settings,
        server_tls=server_tls(config),
        client_tls=client_tls(config),
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
