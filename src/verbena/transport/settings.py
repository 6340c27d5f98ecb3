"""The settings of a node, as plain values. configured.py creates them from the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verbena.verbs import Context, IbvOptions, IwarpOptions, QuicOptions, open_device


@dataclass(frozen=True)
class Settings:
    """Settings of a node. Names and defaults match the configuration where it has the same key."""

    wires: tuple[str, ...] = ("shm", "ibv", "iwarp")  # best first; unusable ones are skipped
    devices: Mapping[str, str] = field(default_factory=dict)  # wire → device, if not its first
    node_name: str = ""
    data_port: int = 0  # of the wires iwarp and quic; 0: the port of the listener

    send_queue_depth: int = 128
    recv_queue_depth: int = 128
    cq_size: int = 4096
    inline_threshold: int = 256
    max_send_sge: int = 4
    max_recv_sge: int = 4
    max_mr_size: int = 10**9
    keep_registrations: bool | None = None  # None: on wires where registration is expensive
    recv_buffer_pool_size: int = 10_000
    recv_buffer_size: int = 4096
    huge_pages: bool = False
    numa: str = "auto"
    pin_memory: bool = False
    poll_batch: int = 32
    busy_poll_us: int = 100
    adaptive_polling: bool = True

    max_send_size: int = 4 << 20
    num_memory_regions: int = 16
    fragment_bytes: int = 512 << 10  # of a bulk transfer; each fragment costs a round trip
    max_message_size: int = 64 << 20
    max_connections: int = 1000
    max_calls: int = 1024

    connection_timeout_ms: int = 5000
    connection_retries: int = 3
    retry_delay_ms: int = 1000
    resume_timeout_s: float = 30.0
    heartbeat_interval_ms: int = 1000
    peer_timeout_ms: int = 10_000
    upgrade_delay_ms: int = 1000
    upgrade_delay_max_ms: int = 60_000
    allow_drill: bool = False  # peers may request failover drills
    metrics_listen: str = ""
    metrics_host_names: tuple[str, ...] = ()  # of the pages, besides this machine's
    capture_folder: str = ""
    capture_headers_only: bool = False
    secret: bytes = field(default=b"", repr=False)
    allow_uids: tuple[int, ...] = ()  # on this host, besides the node's own uid and root, without a secret
    iwarp: IwarpOptions | None = None  # None: from the environment
    quic: QuicOptions | None = None  # None: from the environment
    ibv: IbvOptions | None = None  # None: any port, and the GID that reaches the peer
    gid_key: str = "network.rdma_gid_index"  # the configuration key of the GID index, for log events
    gid_is_default: bool = True  # if the GID index does not exist, the best entry is used
    open_device: Callable[..., Context] = open_device  # replaced by tests

    @property
    def window(self) -> int:
        """Maximum number of unacknowledged messages from a peer."""
        return self.recv_queue_depth

    @property
    def timeout_s(self) -> float:
        return self.connection_timeout_ms / 1000

    def key(self) -> Hashable:
        """Equal for settings from which equal nodes are made now."""
        from_environment = tuple(
            sorted((name, value) for name, value in os.environ.items() if _is_option(name))
        )
        return (from_environment, *(_hashable(value) for value in vars(self).values()))


def _is_option(variable: str) -> bool:
    """Returns whether it is an environment variable of a wire."""
    return variable.startswith(("VERBENA_IWARP_", "VERBENA_QUIC_"))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value
