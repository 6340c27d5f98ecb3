"""The keys of `[network]`, `[replication]`, `[cluster]` and `[shards]`."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, endpoint, integer, secret, section, size, text
from verbena.config.kinds import Secret, Text
from verbena.config.service import FILE, HOUR_MS, KIB, MIB, SECRET_FILE_NOTE

TIB = 1 << 40

DEVICE = Text('a device name such as "mlx5_0", or "auto"', r"[A-Za-z0-9_.:-]{1,64}")
USER = Text('a name, or "" for the user `default`', r"[^\s\x00-\x1f\x7f\ud800-\udfff]{0,64}")
ETCD_USER = Text('a name, or "" for none', r"[^\s\x00-\x1f\x7f\ud800-\udfff]{0,64}")
NUMA = Text('"auto", "off", or the number of a node such as "0"', r"auto|off|[0-9]{1,3}")
ADDRESS_OR_NONE = Text('an address or host name, or ""', r"[^\s\[\]/\x00-\x1f\x7f]{0,253}")
TRANSPORTS = ("rdma", "tcp", "quic")
TRANSPORT_NOTE = (
    "`rdma` uses the wire of a session: RDMA if `network.rdma_enabled` is on and both ends support it,"
    " else `network.rdma_fallback`."
)


@dataclass(frozen=True)
class NetworkRdma(Section):
    """Connections, memory, queues and polling of the wires that sessions use."""

    READ_BY = "sessions"

    max_connections: int = integer(
        1000,
        1,
        1_000_000,
        "The maximum number of open connections.",
        "Further connections are rejected with an error that names the limit. Each holds a queue"
        " pair and its buffers.",
    )
    connection_timeout_ms: int = integer(
        5000,
        1,
        HOUR_MS,
        "The time limit for one connection attempt.",
    )
    connection_retries: int = integer(
        3,
        0,
        1000,
        "The number of retries on one wire before the next wire is tried.",
        "With 0, the fallback is tried after the first failure. As long as another wire has not been tried,"
        " a wire gets 1.5 seconds for all its attempts.",
    )
    retry_delay_ms: int = integer(
        1000,
        0,
        HOUR_MS,
        "The delay before each retry.",
    )
    max_mr_size: int = size(
        10**9,
        4 * KIB,
        TIB,
        "The largest memory region that is registered for one part of a `read_into()` or `write()`.",
        "Larger transfers use several regions. On RDMA devices, where registration is expensive, up"
        " to this much"
        " memory stays registered for the next transfer of the same buffer. Memory that a node exposes is one"
        " region with one key, whatever its size.",
    )
    inline_threshold: int = size(
        256,
        0,
        64 * KIB,
        "The largest message that is sent inline, inside the work request.",
        "The buffer of an inline message can be reused at once. The device's own limit applies if it"
        " is lower;"
        " 0 disables inline sends.",
    )
    send_queue_depth: int = integer(
        128,
        1,
        32768,
        "The depth of a connection's send queue.",
    )
    recv_queue_depth: int = integer(
        128,
        1,
        32768,
        "The number of receives that a connection keeps posted.",
        "A peer may send this many messages before one of them is consumed.",
    )
    max_send_sge: int = integer(
        4,
        1,
        128,
        "The number of scatter/gather elements of a send.",
        "Queue pairs of sessions are created with this limit, or the device's if it is lower;"
        " session messages use one.",
    )
    max_recv_sge: int = integer(
        4,
        1,
        128,
        "The number of scatter/gather elements of a receive.",
        "The device's limit applies if it is lower.",
    )
    cq_size: int = integer(
        4096,
        2,
        4_194_303,
        "The number of completions that a completion queue holds.",
        "Connections share a queue; another queue is created when the work of the next connection"
        " would not fit."
        " The device's limit applies if it is lower.",
    )
    poll_batch: int = integer(
        32,
        1,
        4096,
        "The number of completions that one poll takes.",
        "Larger values favour throughput, smaller ones the latency of the first completion.",
    )
    adaptive_polling: bool = boolean(
        True,
        "Whether a waiting thread polls for `busy_poll_us` and then sleeps until an event arrives.",
        "If off, a waiting thread polls without sleeping: lowest latency, but one core is busy for each node"
        " and the event loop is never idle.",
    )
    busy_poll_us: int = integer(
        100,
        0,
        1_000_000,
        "How long a waiting thread polls before it sleeps, if `adaptive_polling` is on.",
        "A wake-up takes tens of microseconds; choose about the usual response time.",
    )
    pin_memory: bool = boolean(
        False,
        "Whether buffers of software wires are locked in memory.",
        "RDMA devices always lock registered memory. `ulimit -l` must cover both.",
    )
    huge_pages: bool = boolean(
        False,
        "Whether buffers use huge pages.",
        "Reserve them first: `sysctl -w vm.nr_hugepages=N`.",
    )
    numa: str = text(
        "auto",
        NUMA,
        "The preferred NUMA node for buffers.",
        "`auto` selects the node of the RDMA device on machines with several nodes; software wires have none."
        " A number applies to every wire; `off` leaves the choice to the kernel.",
    )
    recv_buffer_pool_size: int = integer(
        10_000,
        1,
        10_000_000,
        "The number of receive buffers that are allocated and registered at start.",
        "All connections share them. Their memory is this number times `recv_buffer_size`.",
    )
    recv_buffer_size: int = size(
        4096,
        64,
        16 * MIB,
        "The size of a receive buffer.",
        "Longer messages use several buffers or a one-sided transfer.",
    )


@dataclass(frozen=True)
class Network(Section):
    """RDMA devices and the fallback."""

    READ_BY = "sessions"

    rdma_enabled: bool = boolean(
        False,
        "Whether RDMA devices are used.",
        "If off, peers on one host use shared memory and others use the fallback.",
    )
    rdma_device: str = text(
        "mlx5_0",
        DEVICE,
        "The RDMA device.",
        "`verbena devices` lists the devices; `auto` selects the first with an ACTIVE port.",
    )
    rdma_port: int = integer(
        1, 1, 255, "The port of the RDMA device.", "A device without this port is not used."
    )
    rdma_gid_index: int = integer(
        3,
        -1,
        255,
        "The index of our address in the port's GID table.",
        "It selects RoCE v1 or v2 and IPv4 or IPv6; `verbena devices -v` lists the entries. -1"
        " selects the best"
        " entry: RoCE v2 before v1, IPv4 before IPv6. A device without the configured entry is not"
        " used. If the"
        " key is not set and the device lacks the default entry, as a new Soft-RoCE device does, -1"
        " applies and"
        " the log reports it. RoCE only: InfiniBand and iWARP connections use IP addresses.",
    )
    rdma_fallback: str = choice(
        "tcp",
        ("tcp", "quic", "none"),
        "The wire between machines when RDMA is disabled, absent or broken.",
        "`none` reports an error instead. Results do not depend on the wire.",
    )
    rdma: NetworkRdma = section(NetworkRdma)


@dataclass(frozen=True)
class ReplicationRdma(Section):
    """Transfer of the log to replicas over RDMA."""

    READ_BY = "replication"

    use_rdma_write: bool = boolean(
        True,
        "Whether the log is written into the replica's memory by RDMA WRITE.",
        "If off, the log is sent in messages.",
    )
    max_inline_size: int = size(
        512,
        0,
        64 * KIB,
        "The largest piece of the log that is sent inside a message.",
        "Longer pieces are written into the replica's memory if `use_rdma_write` is on.",
    )
    ring_size: int = size(
        4 * MIB,
        64 * KIB,
        1024 * MIB,
        "The size of the ring in a replica's memory that its primary writes the log into.",
        "It bounds the part of the log that is in flight.",
    )


@dataclass(frozen=True)
class Replication(Section):
    """Replication between a primary and its replicas."""

    READ_BY = "replication"

    transport: str = choice("rdma", TRANSPORTS, "The wire to replicas.", TRANSPORT_NOTE)
    rdma_device: str = text("mlx5_0", DEVICE, "The RDMA device that a replica uses to reach its primary.")
    replicaof: str = endpoint(
        "",
        "The client address of the primary that this server replicates; empty: this server is a primary.",
        "REPLICAOF changes it at run time.",
    )
    primary_user: str = text(
        "",
        USER,
        "The user as which a replica logs in to its primary.",
        "It needs the rights `+psync +replconf +ping`.",
    )
    primary_password: Secret = secret(
        4,
        "The password of `primary_user`.",
        "Prefer `primary_password_file`. There is no flag, because command lines are visible to all users of"
        " a machine.",
    )
    primary_password_file: str = text("", FILE, "The file with the password.", SECRET_FILE_NOTE)
    replica_read_only: bool = boolean(True, "Whether a replica rejects writes of its clients.")
    backlog_size: int = size(
        16 * MIB,
        64 * KIB,
        TIB,
        "The size of the replication backlog, for replicas that reconnect.",
        "A replica that missed more gets a full copy.",
    )
    min_replicas_to_write: int = integer(
        0, 0, 1000, "The number of in-sync replicas below which a primary rejects writes; 0: it never does."
    )
    min_replicas_max_lag: int = integer(
        10,
        0,
        HOUR_MS // 1000,
        "The number of seconds without an acknowledgement after which a replica is not in sync.",
        "0 disables `min_replicas_to_write`.",
    )
    rdma: ReplicationRdma = section(ReplicationRdma)


@dataclass(frozen=True)
class ClusterRdma(Section):
    """Cluster traffic over RDMA."""

    READ_BY = "the cluster"

    gossip_rdma: bool = boolean(True, "Whether gossip uses the RDMA wire.")
    migration_rdma: bool = boolean(
        True,
        "Whether the base copy of a moving slot uses RDMA.",
        "The log after it and the cut-over always use TCP or QUIC.",
    )


@dataclass(frozen=True)
class ClusterEtcd(Section):
    """How a node logs in to the etcd of the cluster map."""

    READ_BY = "the cluster"

    user: str = text(
        "", ETCD_USER, "The user of etcd; empty: no login.", "Its role needs the prefix of the map."
    )
    password: Secret = secret(
        4,
        "The password of `user`.",
        "Prefer `password_file`. There is no flag, because command lines are visible to all users of a"
        " machine.",
    )
    password_file: str = text("", FILE, "The file with the password.", SECRET_FILE_NOTE)
    ca: str = text(
        "", FILE, "The certificate authorities that etcd's certificate must come from; needs `etcds://`."
    )
    certificate: str = text("", FILE, "The client certificate, if etcd requires one (`--client-cert-auth`).")
    key: str = text("", FILE, "The private key of `certificate`; empty: it is in the certificate's file.")


@dataclass(frozen=True)
class Cluster(Section):
    """Cluster membership and the cluster map."""

    READ_BY = "the cluster"

    enabled: bool = boolean(False, "Whether this node is part of a cluster.")
    transport: str = choice("rdma", TRANSPORTS, "The wire between nodes.", TRANSPORT_NOTE)
    map_store: str = text(
        "sqlite://verbena-cluster.db",
        Text("sqlite:///PATH, etcd://HOST:PORT[/PREFIX] or etcds://… (TLS)", r"(sqlite|etcds?)://.+"),
        "The store of the cluster map; all nodes must use the same one.",
        "SQLite serves the nodes of one machine, etcd those of several.",
    )
    folder: str = text(
        "",
        FILE,
        "The folder of the node's id and of the checkpoints of slot moves; empty: the folder of the log.",
        "Without either folder the node gets a new id at each start.",
    )
    announce_address: str = text(
        "",
        ADDRESS_OR_NONE,
        "The address that is announced to clients and other nodes; empty: the address of the client port.",
    )
    node_timeout_ms: int = integer(
        15_000,
        100,
        HOUR_MS,
        "The time after which a silent node counts as failed, and a node that cannot renew its lease"
        " stops serving.",
        "etcd uses whole seconds, at least two.",
    )
    write_pause_budget_ms: int = integer(
        100,
        1,
        60_000,
        "How long commands may wait during the cut-over of a slot move; a longer cut-over is rolled back.",
    )
    ready_within: int = integer(
        1000, 0, 1_000_000, "The lag of the target, in records, at which the cut-over begins."
    )
    rdma: ClusterRdma = section(ClusterRdma)
    etcd: ClusterEtcd = section(ClusterEtcd)


@dataclass(frozen=True)
class ShardsRdma(Section):
    """Device and buffers for the base copy of a shard move."""

    READ_BY = "shard moves"

    device: str = text("mlx5_0", DEVICE, "The RDMA device that the source of a move uses.")
    port: int = integer(1, 1, 255, "The device's port.")
    gid_index: int = integer(0, -1, 255, "The index in its GID table, as `network.rdma_gid_index`.")
    max_send_size: int = size(
        4 * MIB,
        4 * KIB,
        1024 * MIB,
        "The largest piece of a transfer.",
        "Longer segments are split; the peer acknowledges each piece.",
    )
    num_memory_regions: int = integer(16, 1, 4096, "The number of registered regions that are in flight.")
    qp_depth: int = integer(64, 1, 32768, "The number of outstanding operations of a move.")


@dataclass(frozen=True)
class Shards(Section):
    """Moving shards between nodes."""

    READ_BY = "shard moves"

    rdma: ShardsRdma = section(ShardsRdma)
