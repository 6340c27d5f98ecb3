"""The table of keys, first part: `[network]`, `[replication]`, `[cluster]` and `[shards]`."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, endpoint, integer, secret, section, size, text
from verbena.config.kinds import FilePath, Secret, Text

KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40
HOUR_MS = 3_600_000

DEVICE = Text('a device name such as "mlx5_0", or "auto"', r"[A-Za-z0-9_.:-]{1,64}")
USER = Text('a name, or "" for the user `default`', r"[^\s\x00-\x1f\x7f\ud800-\udfff]{0,64}")
NUMA = Text('"auto", "off", or the number of a node such as "0"', r"auto|off|[0-9]{1,3}")
FILE = FilePath('a path, or "" for none', r"[^\x00-\x1f\x7f\ud800-\udfff]*")
ADDRESS_OR_NONE = Text('an address or host name, or ""', r"[^\s\[\]/\x00-\x1f\x7f]{0,253}")
TRANSPORTS = ("rdma", "tcp", "quic")
TRANSPORT_NOTE = (
    "`rdma` takes the wire that a session takes: RDMA if `network.rdma_enabled` is on and both ends can,"
    " else what `network.rdma_fallback` names."
)


@dataclass(frozen=True)
class NetworkRdma(Section):
    """Connections, memory, queues and polling of the wires that sessions use."""

    READ_BY = "sessions"

    max_connections: int = integer(
        1000,
        1,
        1_000_000,
        "How many connections may be open at once.",
        "Further ones are turned down with the reason. Every connection holds a queue pair and its buffers.",
    )
    connection_timeout_ms: int = integer(
        5000,
        1,
        HOUR_MS,
        "How long one attempt to connect may take.",
    )
    connection_retries: int = integer(
        3,
        0,
        1000,
        "How often a failed attempt on a wire is repeated before the next wire is taken.",
        "0 goes to the fallback after the first failure.",
    )
    retry_delay_ms: int = integer(
        1000,
        0,
        HOUR_MS,
        "The pause before each repetition.",
    )
    max_mr_size: int = size(
        10**9,
        4 * KIB,
        TIB,
        "The longest piece of a program's buffer that is registered at once when it is put or got.",
        "More data is moved through several regions. As much in all is kept registered for the next transfer"
        " of the same buffer, on wires where registering costs something: RDMA devices. Memory that a node"
        " exposes has one key, and is one region however long it is.",
    )
    inline_threshold: int = size(
        256,
        0,
        64 * KIB,
        "Messages up to this long travel inside the work request.",
        "The wire then fetches nothing from memory, and the buffer is free at once. A device that takes less"
        " inline data lowers it; 0 turns it off.",
    )
    send_queue_depth: int = integer(
        128,
        1,
        32768,
        "How many sends of a connection may be under way.",
    )
    recv_queue_depth: int = integer(
        128,
        1,
        32768,
        "How many receives a connection keeps posted.",
        "It is the number of messages a peer may send before one of them has been taken.",
    )
    max_send_sge: int = integer(
        4,
        1,
        128,
        "How many pieces of memory one send may gather.",
        "Queue pairs of sessions are made for so many, or what the device has; their own messages use one.",
    )
    max_recv_sge: int = integer(
        4, 1, 128, "How many pieces of memory one receive may scatter to.", "As `max_send_sge`."
    )
    cq_size: int = integer(
        4096,
        2,
        4_194_303,
        "How many completions a completion queue holds.",
        "Connections share a queue; another is made when the next one's sends and receives would not fit."
        " A device that takes less lowers it.",
    )
    poll_batch: int = integer(
        32,
        1,
        4096,
        "How many completions are taken from a queue at a time.",
        "More is better for throughput, fewer for the latency of the first.",
    )
    adaptive_polling: bool = boolean(
        True,
        "Whether waiting spins for `busy_poll_us` and then sleeps until the wire rings.",
        "Off, waiting spins without end: the lowest latency, at the price of a core for each node, and of"
        " the event loop's idle time.",
    )
    busy_poll_us: int = integer(
        100,
        0,
        1_000_000,
        "How long waiting spins before it sleeps, if `adaptive_polling` is on.",
        "Waking a sleeper costs tens of microseconds: spin about as long as an answer usually takes.",
    )
    pin_memory: bool = boolean(
        False,
        "Whether the buffers of software wires are locked in memory too.",
        "Hardware locks what it registers in any case. `ulimit -l` must allow for both.",
    )
    huge_pages: bool = boolean(
        False,
        "Whether buffers lie in huge pages.",
        "They must have been reserved: `sysctl -w vm.nr_hugepages=N`.",
    )
    numa: str = text(
        "auto",
        NUMA,
        "The NUMA node that buffers come from, while it has memory.",
        "`auto` is the device's own, if the machine has several and the device is on one: RDMA devices are,"
        " software wires are not. A number is for every wire; `off` leaves it to the kernel.",
    )
    recv_buffer_pool_size: int = integer(
        10_000,
        1,
        10_000_000,
        "How many receive buffers are allocated and registered ahead.",
        "All connections share them; together they take this many times `recv_buffer_size`.",
    )
    recv_buffer_size: int = size(
        4096,
        64,
        16 * MIB,
        "The length of a receive buffer.",
        "Longer messages arrive in several buffers, or by one-sided transfer.",
    )


@dataclass(frozen=True)
class Network(Section):
    """Whether RDMA devices are used, which, and what takes their place."""

    READ_BY = "sessions"

    rdma_enabled: bool = boolean(
        False,
        "Whether RDMA devices are used.",
        "Off, peers on one host still share memory, and others use the fallback.",
    )
    rdma_device: str = text(
        "mlx5_0",
        DEVICE,
        "The RDMA device.",
        "`verbena devices` lists them; `auto` takes the first whose port is ACTIVE.",
    )
    rdma_port: int = integer(
        1, 1, 255, "The device's port.", "A device that has no such port is not used. For RDMA devices only."
    )
    rdma_gid_index: int = integer(
        3,
        -1,
        255,
        "Which entry of the port's GID table is our address.",
        "It decides between RoCE v1 and v2, IPv4 and IPv6: `verbena devices -v` lists the entries."
        " -1 takes the one that others reach best: RoCE v2 before v1, IPv4 before IPv6. A device whose table"
        " lacks the entry that was chosen is not used; if nobody has chosen one and the default is not there,"
        " as on a fresh Soft-RoCE device, -1 is meant, and the log says so. For RoCE only: connections over"
        " InfiniBand and iWARP are made by IP address.",
    )
    rdma_fallback: str = choice(
        "tcp",
        ("tcp", "quic", "none"),
        "The wire between machines when RDMA is off, absent or broken.",
        "`none` reports the failure instead. Whatever the wire, results are the same.",
    )
    rdma: NetworkRdma = section(NetworkRdma)


@dataclass(frozen=True)
class ReplicationRdma(Section):
    """How the log travels to replicas over RDMA."""

    READ_BY = "replication"

    use_rdma_write: bool = boolean(
        True,
        "Whether the log is written straight into the replica's memory by RDMA WRITE.",
        "Off, it travels in messages.",
    )
    max_inline_size: int = size(
        512,
        0,
        64 * KIB,
        "Where a message is sent, a piece of the log up to this long travels inside it.",
        "Longer ones are written into the replica's memory, if `use_rdma_write` is on.",
    )
    ring_size: int = size(
        4 * MIB,
        64 * KIB,
        1024 * MIB,
        "How much memory a replica lends its primary to write the log into.",
        "So much may be on its way.",
    )


@dataclass(frozen=True)
class Replication(Section):
    """How replicas are fed."""

    READ_BY = "replication"

    transport: str = choice("rdma", TRANSPORTS, "The wire to replicas.", TRANSPORT_NOTE)
    rdma_device: str = text("mlx5_0", DEVICE, "The RDMA device by which a replica reaches its primary.")
    replicaof: str = endpoint(
        "",
        "The primary that this server follows, as its clients know it; empty: it is a primary itself.",
        "REPLICAOF changes it at run time.",
    )
    primary_user: str = text(
        "", USER, "The user by which a replica asks its primary where sessions are taken."
    )
    primary_password: Secret = secret(
        4, "That user's password.", "There is no flag: command lines can be seen by all."
    )
    replica_read_only: bool = boolean(True, "Whether a replica refuses its clients' writes.")
    backlog_size: int = size(
        16 * MIB,
        64 * KIB,
        TIB,
        "How much of the log stays in memory for replicas that come back.",
        "One that has missed more gets a copy of everything.",
    )
    min_replicas_to_write: int = integer(
        0, 0, 1000, "With fewer replicas than this that keep up, a primary refuses writes; 0: it never does."
    )
    min_replicas_max_lag: int = integer(
        10,
        0,
        HOUR_MS // 1000,
        "For how many seconds a replica that says nothing keeps up all the same.",
        "0: `min_replicas_to_write` does not count.",
    )
    rdma: ReplicationRdma = section(ReplicationRdma)


@dataclass(frozen=True)
class ClusterRdma(Section):
    """What nodes of a cluster do over RDMA."""

    READ_BY = "the cluster"

    gossip_rdma: bool = boolean(True, "Whether gossip travels over the RDMA wire.")
    migration_rdma: bool = boolean(
        True,
        "Whether the base copy of a slot that moves is made by RDMA.",
        "The log that follows it, and the cut-over, use TCP or QUIC in any case.",
    )


@dataclass(frozen=True)
class Cluster(Section):
    """Whether this node is one of a cluster, and how its nodes talk."""

    READ_BY = "the cluster"

    enabled: bool = boolean(False, "Whether this node is part of a cluster.")
    transport: str = choice("rdma", TRANSPORTS, "The wire between nodes.", TRANSPORT_NOTE)
    map_store: str = text(
        "sqlite://verbena-cluster.db",
        Text("sqlite:///PATH or etcd://HOST:PORT[/PREFIX]", r"(sqlite|etcd)://.+"),
        "Where the cluster map is kept: the same for all its nodes.",
        "A file serves nodes of one machine, etcd those of several.",
    )
    folder: str = text(
        "",
        FILE,
        "Where the node keeps its id and the checkpoints of moves; empty: beside the log, if there is one.",
        "Without either it is another node after each start.",
    )
    announce_address: str = text(
        "",
        ADDRESS_OR_NONE,
        "The address that clients and other nodes are told; empty: the one where clients are taken.",
    )
    node_timeout_ms: int = integer(
        15_000,
        100,
        HOUR_MS,
        "After how long a silent node counts as gone; a node that cannot renew its lease stops serving then.",
        "etcd counts whole seconds, and two at least.",
    )
    write_pause_budget_ms: int = integer(
        100,
        1,
        60_000,
        "For how long commands on slots that change hands may wait; a move that takes longer is called off.",
    )
    ready_within: int = integer(
        1000, 0, 1_000_000, "How many records behind a target may be when its source stops writing."
    )
    rdma: ClusterRdma = section(ClusterRdma)


@dataclass(frozen=True)
class ShardsRdma(Section):
    """The device and the buffers for the base copy of a shard that moves."""

    READ_BY = "shard moves"

    device: str = text("mlx5_0", DEVICE, "The RDMA device by which a shard's source reaches its target.")
    port: int = integer(1, 1, 255, "The device's port.")
    gid_index: int = integer(0, -1, 255, "The entry of its GID table, as for `network.rdma_gid_index`.")
    max_send_size: int = size(
        4 * MIB,
        4 * KIB,
        1024 * MIB,
        "The longest piece sent at once.",
        "A longer segment goes in several, each acknowledged by the peer.",
    )
    num_memory_regions: int = integer(16, 1, 4096, "How many registered regions are filled and sent in turn.")
    qp_depth: int = integer(64, 1, 32768, "How many operations may be under way, on any wire for moves.")


@dataclass(frozen=True)
class Shards(Section):
    """Moving shards between nodes."""

    READ_BY = "shard moves"

    rdma: ShardsRdma = section(ShardsRdma)
