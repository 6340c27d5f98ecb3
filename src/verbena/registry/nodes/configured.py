"""Opens the nodes that the configuration describes."""

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
    """Returns None if neither peers nor upstream registries are enabled. Raises the errors of listening, such
    as a missing secret."""
    keys = config.registry
    if not keys.rdma_enabled and not keys.upstream:
        return None
    # registry.rdma_enabled implies the use of RDMA devices, where there are any.
    network = dataclasses.replace(
        config.network, rdma_enabled=config.network.rdma_enabled or keys.rdma_enabled
    )
    settings = settings_from(dataclasses.replace(config, network=network))
    # Few nodes send only short messages, so a small pool of receive buffers is enough.
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
