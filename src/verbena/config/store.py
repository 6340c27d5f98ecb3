"""The table of keys, third part: `[kv]`, the store that `verbena serve` runs."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, integer, secret, section, size, text
from verbena.config.kinds import Secret, Text
from verbena.config.service import ADDRESS, FILE, KIB, MIB

EVENTS = Text("letters out of K, E, A, g, $, l, s, h, z, x, e, t and d", r"[KEAg$lshzxetd]*")
TIB = 1 << 40


@dataclass(frozen=True)
class KvPersistence(Section):
    """What the store keeps on disk."""

    READ_BY = "the store"

    dir: str = text(
        "",
        FILE,
        "The directory of the log and the snapshots; empty: everything is in memory only.",
        "It is made if it is not there. One server at a time may use it.",
    )
    fsync: str = choice(
        "everysec",
        ("always", "everysec", "no"),
        "When what has changed is on disk: before the reply, within a second, or when the kernel likes.",
        "A server that is killed loses nothing that it has answered, whatever this says; a machine may.",
    )
    snapshot_percentage: int = integer(
        100,
        0,
        10_000,
        "By how much of the last snapshot's size the log may grow until the next; 0: only when asked.",
    )
    snapshot_min_size: int = size(
        64 * MIB, KIB, TIB, "How long the log is at least when a snapshot is made by itself."
    )


@dataclass(frozen=True)
class Kv(Section):
    """The key-value store that `verbena serve` runs, for clients of Redis and Valkey."""

    READ_BY = "the store"

    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address where clients are taken.",
        "`0.0.0.0` and `::` mean every interface. Without a password only this machine is let in: see "
        "`protected_mode`.",
    )
    tcp: bool = boolean(True, "Whether clients are taken by TCP without TLS.")
    port: int = integer(
        6379,
        0,
        65535,
        "The TCP port where clients are taken; 0 picks one.",
        "If it was not asked for, and is taken, a free one is used instead, and said.",
    )
    unix_socket: str = text("", FILE, "A Unix socket for clients of this machine, removed at the end.")
    tls_port: int = integer(
        0,
        0,
        65535,
        "The TCP port where clients speak TLS, with the certificate of `[tls]`.",
        "0, if it is asked for, picks one; otherwise there is none. "
        "Where `tls.ca` and `tls.require_client_certificate` are set, clients must show one as well.",
    )
    rdma_listen: str = text(
        "",
        Text('rdma://HOST:PORT, iwarp://HOST:PORT, shm://NAME, or "" for none', r"((rdma|iwarp|shm)://.*)?"),
        "Where clients that speak Valkey over RDMA are taken.",
        "Only this machine's wires matter to iwarp:// and shm://, which only Verbena's own client speaks.",
    )
    sessions: bool = boolean(
        True,
        "Whether sessions are taken, too: `[session]` says where, and who may.",
        "`verbena.connect()` needs it.",
    )
    password: Secret = secret(
        4,
        "The password of the user `default`.",
        "There is no flag: command lines can be seen by all.",
    )
    acl_file: str = text(
        "", FILE, "The file of users and their rules, as ACL SAVE writes it.", "It may be absent at first."
    )
    protected_mode: bool = boolean(
        True, "Whether, as long as no password is set, only clients of this machine are let in."
    )
    databases: int = integer(16, 1, 128, "How many databases SELECT can choose from.")
    maxclients: int = integer(10_000, 1, 1_000_000, "How many clients are served at once.")
    timeout_s: int = integer(0, 0, 2**31 - 1, "After how long without a command a client is closed; 0 never.")
    busy_poll_us: int = integer(
        50,
        0,
        10_000,
        "For how many microseconds a busy server looks for more before it sleeps; 0: it sleeps at once.",
        "It spares clients the time to wake it. The more often it was in vain, the rarer it is done; "
        "while others want its processor, not at all.",
    )
    maxmemory: int = size(
        0,
        0,
        1024 * TIB,
        "How much memory strings and keys may take; 0: no bound.",
        "Then `maxmemory_policy` applies.",
    )
    maxmemory_policy: str = choice(
        "noeviction",
        (
            *("noeviction", "allkeys-lru", "volatile-lru", "allkeys-lfu", "volatile-lfu"),
            *("allkeys-random", "volatile-random", "volatile-ttl"),
        ),
        "Which keys go when memory is full; with noeviction writes are refused.",
    )
    maxmemory_samples: int = integer(5, 1, 64, "Among how many keys the one to go is chosen.")
    notify_keyspace_events: str = text(
        "", EVENTS, "Which changes of keys are published, in the letters of Redis; empty: none."
    )
    slowlog_log_slower_than: int = integer(
        10_000, -1, 2**63 - 1, "From how many microseconds on SLOWLOG has a command; -1: it has none."
    )
    slowlog_max_len: int = integer(128, 0, 2**31, "How many it keeps.")
    latency_monitor_threshold_ms: int = integer(
        0, 0, 2**63 - 1, "From when on LATENCY has an event; 0: it has none."
    )
    tracking_table_max_keys: int = integer(
        1_000_000,
        0,
        2**63 - 1,
        "How many keys that clients cache (CLIENT TRACKING) are remembered; 0: no bound.",
        "When there are more, some are said to have changed.",
    )
    client_output_buffer_limit: str = text(
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        Text("class, hard limit, soft limit and seconds, for one class or several"),
        "How much a client may leave unread before it is closed.",
        "The hard limit counts at once, the soft one after so many seconds; 0: no bound.",
    )
    proto_max_bulk_len: int = size(512 * MIB, MIB, 4096 * MIB - KIB, "The longest value or argument.")
    commands: str = text(
        "",
        Text("modules or files, separated by commas"),
        "Modules or files of Python with further commands, separated by commas.",
        "They declare them as the store's own are declared: see the guide.",
    )
    persistence: KvPersistence = section(KvPersistence)
