"""What a node needs to know, as plain values; from_config() takes them from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from verbena.config import Config, read_secret
from verbena.errors import setup_error
from verbena.verbs import Context, open_device

# The configuration's words for wires, and the wires.
WIRES = {"tcp": "iwarp", "rdma": "ibv"}
ALWAYS = "shm"


@dataclass(frozen=True)
class Settings:
    """The names and defaults are those of the configuration, where it has them."""

    wires: tuple[str, ...] = ("shm", "ibv", "iwarp")  # best first; those that cannot be opened are left out
    devices: Mapping[str, str] = field(default_factory=dict)  # wire → device, if not its first
    node_name: str = ""

    send_queue_depth: int = 128
    recv_queue_depth: int = 128
    cq_size: int = 4096
    inline_threshold: int = 256
    recv_buffer_pool_size: int = 10_000
    recv_buffer_size: int = 4096
    huge_pages: bool = False
    pin_memory: bool = False
    busy_poll_us: int = 100
    adaptive_polling: bool = True

    max_send_size: int = 4 << 20
    num_memory_regions: int = 16
    fragment_bytes: int = 256 << 10  # of a bulk transfer: as much as a cache holds while it is checked
    max_message_size: int = 16 << 20
    max_connections: int = 1000
    max_calls: int = 1024

    connection_timeout_ms: int = 5000
    connection_retries: int = 3
    retry_delay_ms: int = 1000
    resume_timeout_s: float = 30.0
    heartbeat_interval_ms: int = 1000
    peer_timeout_ms: int = 5000
    upgrade_delay_ms: int = 1000
    upgrade_delay_max_ms: int = 60_000
    secret: bytes = field(default=b"", repr=False)
    open_device: Callable[[str], Context] = open_device  # tests put a wire in between

    @classmethod
    def from_config(cls, config: Config) -> Settings:
        """What a configuration says; its own `load()` is the place to begin."""
        network, rdma, session = config.network, config.network.rdma, config.session
        device = "" if network.rdma_device == "auto" else network.rdma_device
        return cls(
            wires=_wires(network.rdma_enabled, network.rdma_fallback),
            devices={"ibv": device} if device else {},
            node_name=session.node_name,
            send_queue_depth=rdma.send_queue_depth,
            recv_queue_depth=rdma.recv_queue_depth,
            cq_size=rdma.cq_size,
            inline_threshold=rdma.inline_threshold,
            recv_buffer_pool_size=rdma.recv_buffer_pool_size,
            recv_buffer_size=rdma.recv_buffer_size,
            huge_pages=rdma.huge_pages,
            pin_memory=rdma.pin_memory,
            busy_poll_us=rdma.busy_poll_us,
            adaptive_polling=rdma.adaptive_polling,
            max_send_size=config.shards.rdma.max_send_size,
            num_memory_regions=config.shards.rdma.num_memory_regions,
            max_message_size=session.max_message_size,
            max_connections=rdma.max_connections,
            connection_timeout_ms=rdma.connection_timeout_ms,
            connection_retries=rdma.connection_retries,
            retry_delay_ms=rdma.retry_delay_ms,
            resume_timeout_s=session.resume_timeout_s,
            heartbeat_interval_ms=session.heartbeat_interval_ms,
            peer_timeout_ms=session.peer_timeout_ms,
            upgrade_delay_ms=session.upgrade_delay_ms,
            upgrade_delay_max_ms=session.upgrade_delay_max_ms,
            secret=read_secret(config).reveal().encode("utf-8", "surrogateescape"),
        )

    @property
    def window(self) -> int:
        """Messages that a peer may have under way to us."""
        return self.recv_queue_depth

    @property
    def timeout_s(self) -> float:
        return self.connection_timeout_ms / 1000


def _wires(rdma_enabled: bool, fallback: str) -> tuple[str, ...]:
    if fallback == "quic":
        detail = 'network.rdma_fallback = "quic": this version has no QUIC wire; take "tcp" or "none"'
        raise setup_error("provider_missing", operation="choose wires", detail=detail)
    wires = [ALWAYS]
    if rdma_enabled:
        wires.append(WIRES["rdma"])
    if fallback != "none":
        wires.append(WIRES[fallback])
    return tuple(wires)
