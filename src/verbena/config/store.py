"""The keys of `[kv]`: the store that `verbena serve` runs."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, integer, secret, section, size, text
from verbena.config.kinds import Secret, Text
from verbena.config.service import ADDRESS, FILE, KIB, MIB, SECRET_FILE_NOTE

EVENTS = Text("letters out of K, E, A, g, $, l, s, h, z, x, e, t and d", r"[KEAg$lshzxetd]*")
PAIR = r"(?:certificate:[^\s,]+|secret|uid:[0-9]{1,10})=[^\s,=]+"
SESSION_USERS = Text(
    'pairs such as "certificate:DNS:web=web, uid:1000=app, secret=app", or "" for none',
    rf"(?:{PAIR}(?:, *{PAIR})*)?",
)
TIB = 1 << 40


@dataclass(frozen=True)
class KvPersistence(Section):
    """Persistence of the store."""

    READ_BY = "the store"

    dir: str = text(
        "",
        FILE,
        "The directory of the log and the snapshots; empty: no persistence.",
        "It is created if it does not exist. Only one server at a time can use it.",
    )
    fsync: str = choice(
        "everysec",
        ("always", "everysec", "no"),
        "When changes are synced to disk: before the reply, every second, or when the kernel decides.",
        "A killed server process loses no acknowledged write with any value; a machine that loses power may.",
    )
    snapshot_percentage: int = integer(
        100,
        0,
        10_000,
        "The growth of the log, in percent of the last snapshot, that triggers a snapshot; 0: no"
        " automatic snapshots.",
    )
    snapshot_min_size: int = size(
        64 * MIB, KIB, TIB, "The minimum size of the log for an automatic snapshot."
    )


@dataclass(frozen=True)
class Kv(Section):
    """The key-value store that `verbena serve` runs, for clients of Redis and Valkey."""

    READ_BY = "the store"

    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address on which clients are accepted.",
        "`0.0.0.0` and `::` mean every interface. Without a password only local clients are accepted: see "
        "`protected_mode`.",
    )
    tcp: bool = boolean(True, "Whether clients are accepted over TCP without TLS.")
    port: int = integer(
        6379,
        0,
        65535,
        "The TCP port on which clients are accepted; 0 selects a free port.",
        "If the default port is in use, a free port is used and printed.",
    )
    unix_socket: str = text("", FILE, "The path of a Unix socket for local clients; removed at shutdown.")
    tls_port: int = integer(
        0,
        0,
        65535,
        "The TCP port for clients that use TLS, with the certificate of `[tls]`.",
        "If set to 0 explicitly, a free port is selected; by default there is none. "
        "If `tls.ca` and `tls.require_client_certificate` are set, clients must present a certificate.",
    )
    rdma_listen: str = text(
        "",
        Text('rdma://HOST:PORT, iwarp://HOST:PORT, shm://NAME, or "" for none', r"((rdma|iwarp|shm)://.*)?"),
        "The address for clients that use the Valkey-over-RDMA protocol.",
        "Valkey clients use rdma://. The addresses iwarp:// and shm:// are for Verbena's own client.",
    )
    sessions: bool = boolean(
        True,
        "Whether sessions are accepted, as configured in `[session]`.",
        "`verbena.connect()` needs it.",
    )
    session_users: str = text(
        "",
        SESSION_USERS,
        "The users as which clients over sessions begin, by what the peer has proved: pairs"
        " `PRINCIPAL=USER`, separated by commas.",
        "A principal is `certificate:` and the name in the certificate, `uid:` and a number, or `secret`. Of"
        " several pairs that apply, the first kind in this order decides: certificate, secret, uid. Such a"
        " client needs no password. Without a pair it begins as a TCP client does.",
    )
    password: Secret = secret(
        4,
        "The password of the user `default`.",
        "Prefer `password_file`. There is no flag, because command lines are visible to all users of a"
        " machine.",
    )
    password_file: str = text("", FILE, "The file with the password.", SECRET_FILE_NOTE)
    acl_file: str = text(
        "", FILE, "The file of users and their rules, as ACL SAVE writes it.", "The file need not exist."
    )
    protected_mode: bool = boolean(True, "Whether only local clients are accepted while no password is set.")
    databases: int = integer(16, 1, 128, "The number of databases for SELECT.")
    maxclients: int = integer(10_000, 1, 1_000_000, "The maximum number of connected clients.")
    timeout_s: int = integer(0, 0, 2**31 - 1, "The idle time after which a client is disconnected; 0: never.")
    busy_poll_us: int = integer(
        50,
        0,
        10_000,
        "How long a busy server polls for requests before it sleeps; 0: it sleeps at once.",
        "Polling saves clients the wake-up time. The server polls less often when polls find nothing, "
        "and not at all while other processes need its processor.",
    )
    maxmemory: int = size(
        0,
        0,
        1024 * TIB,
        "The memory limit for keys and values; 0: none.",
        "At the limit `maxmemory_policy` applies.",
    )
    maxmemory_policy: str = choice(
        "noeviction",
        (
            *("noeviction", "allkeys-lru", "volatile-lru", "allkeys-lfu", "volatile-lfu"),
            *("allkeys-random", "volatile-random", "volatile-ttl"),
        ),
        "Which keys are evicted at the memory limit; noeviction rejects writes.",
    )
    maxmemory_samples: int = integer(5, 1, 64, "The number of keys sampled for each eviction.")
    notify_keyspace_events: str = text(
        "", EVENTS, "The keyspace events that are published, in the letters of Redis; empty: none."
    )
    slowlog_log_slower_than: int = integer(
        10_000,
        -1,
        2**63 - 1,
        "The execution time in microseconds from which SLOWLOG records a command; -1: never.",
    )
    slowlog_max_len: int = integer(128, 0, 2**31, "The number of entries in SLOWLOG.")
    latency_monitor_threshold_ms: int = integer(
        0, 0, 2**63 - 1, "The duration from which LATENCY records an event; 0: never."
    )
    tracking_table_max_keys: int = integer(
        1_000_000,
        0,
        2**63 - 1,
        "The number of keys in the table of CLIENT TRACKING; 0: no limit.",
        "Above the limit, clients get invalidations for random keys.",
    )
    client_output_buffer_limit: str = text(
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        Text("class, hard limit, soft limit and seconds, for one class or several"),
        "The unread output at which a client is disconnected.",
        "The hard limit applies at once, the soft limit after the given seconds; 0: no limit.",
    )
    proto_max_bulk_len: int = size(
        512 * MIB, MIB, 4096 * MIB - KIB, "The maximum size of a value or argument."
    )
    commands: str = text(
        "",
        Text("modules or files, separated by commas"),
        "Python modules or files with additional commands, separated by commas.",
        "The store guide shows how a command is declared.",
    )
    persistence: KvPersistence = section(KvPersistence)
