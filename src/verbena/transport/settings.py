"""What a node needs to know, as plain values; configured.py takes them from verbena.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from verbena.verbs import Context, IbvOptions, IwarpOptions, QuicOptions, open_device


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
    max_send_sge: int = 4
    max_recv_sge: int = 4
    max_mr_size: int = 10**9
    keep_registrations: bool | None = None  # None: on wires where registering costs something
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
    fragment_bytes: int = 1 << 20  # of a bulk transfer: each costs a question and its answer
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
    allow_drill: bool = False  # peers may ask this node to break its links
    metrics_listen: str = ""
    capture_folder: str = ""
    capture_headers_only: bool = False
    secret: bytes = field(default=b"", repr=False)
    iwarp: IwarpOptions | None = None  # None: as the environment says
    quic: QuicOptions | None = None  # likewise
    ibv: IbvOptions | None = None  # None: any port, and whichever GID reaches the peer
    gid_key: str = "network.rdma_gid_index"  # where its GID index comes from
    gid_is_default: bool = True  # nobody has chosen it: where there is no such entry, the best is taken
    open_device: Callable[..., Context] = open_device  # tests put a wire in between

    @property
    def window(self) -> int:
        """Messages that a peer may have under way to us."""
        return self.recv_queue_depth

    @property
    def timeout_s(self) -> float:
        return self.connection_timeout_ms / 1000
