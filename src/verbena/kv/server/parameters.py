"""The parameters of CONFIG GET and CONFIG SET: one table, with Redis' names. Services add their rows with
Parameters.add()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verbena.kv.commands.replies import CommandError
from verbena.kv.server import notifications
from verbena.kv.server.limits import Limit
from verbena.kv.server.parameter_kinds import (
    Choice,
    Integer,
    InvalidValue,
    Kind,
    Memory,
    Percentiles,
    Text,
    YesNo,
)

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.acl import Acl
    from verbena.kv.server.client_table import Clients
    from verbena.kv.server.counters import Stats
    from verbena.kv.server.pubsub import PubSub
    from verbena.kv.server.services import Services

POLICIES = (
    "noeviction",
    "allkeys-lru",
    "volatile-lru",
    "allkeys-lfu",
    "volatile-lfu",
    "allkeys-random",
    "volatile-random",
    "volatile-ttl",
)  # fmt: skip  the order of native code's
NEVER_NS = (1 << 64) - 1

Apply = Callable[["Parameters", Any], None]


@dataclass(frozen=True)
class Targets:
    """What parameters act on."""

    engine: _native.kv.Engine
    acl: Acl
    clients: Clients
    pubsub: PubSub
    stats: Stats
    services: Services


@dataclass(frozen=True)
class Parameter:
    """One parameter. `apply` None: CONFIG SET refuses it. `key`: its key in verbena.toml, for CONFIG
    REWRITE."""

    name: str
    kind: Kind
    default: Any
    apply: Apply | None = None
    key: str = ""
    secret: bool = False


def _no_effect(parameters: Parameters, value: Any) -> None:
    """The value is read where it is used."""


def _memory(parameters: Parameters, value: Any) -> None:
    get = parameters.get
    parameters.targets.engine.limit_memory(
        bytes=get("maxmemory"),
        policy=POLICIES.index(get("maxmemory-policy")),
        samples=get("maxmemory-samples"),
    )


def _connections(parameters: Parameters, value: Any) -> None:
    clients = parameters.targets.clients
    clients.protected = bool(parameters.get("protected-mode"))
    clients.max_clients = int(parameters.get("maxclients"))
    clients.update_dispatch()


def _password(parameters: Parameters, value: str) -> None:
    targets = parameters.targets
    targets.clients.all()  # present clients get their row first: they keep their user and authentication
    targets.acl.set_password(value)
    targets.clients.update_dispatch()


def _notify(parameters: Parameters, value: frozenset[str]) -> None:
    parameters.targets.pubsub.events = value
    parameters.targets.engine.notifications = bool(value)


def _slow(parameters: Parameters, value: Any) -> None:
    get = parameters.get
    slowlog, latency = parameters.targets.stats.slowlog, parameters.targets.stats.latency
    slowlog.threshold_us = get("slowlog-log-slower-than")
    slowlog.max_entries = get("slowlog-max-len")
    slowlog.trim()
    latency.threshold_ms = get("latency-monitor-threshold")
    wanted = [slowlog.threshold_us * 1000] if slowlog.threshold_us >= 0 else []
    wanted += [latency.threshold_ms * 1_000_000] if latency.threshold_ms else []
    parameters.targets.engine.slow_ns = min(wanted, default=NEVER_NS)


def _output(parameters: Parameters, value: dict[str, Limit]) -> None:
    limits = parameters.targets.clients.limits
    limits.by_class = {**limits.by_class, **value}
    limits.apply_all()


def _timeout(parameters: Parameters, value: int) -> None:
    parameters.targets.clients.limits.idle_timeout_s = value


def _busy_poll(parameters: Parameters, value: int) -> None:
    parameters.targets.engine.busy_poll(value * 1000)


def _requests(parameters: Parameters, value: Any) -> None:
    get = parameters.get
    parameters.targets.engine.limit_requests(
        argument_bytes=get("proto-max-bulk-len"), buffer_bytes=get("client-query-buffer-limit")
    )


def _acl(parameters: Parameters, value: Any) -> None:
    get = parameters.get
    acl = parameters.targets.acl
    acl.max_log_entries = get("acllog-max-len")
    acl.new_users_all_channels = get("acl-pubsub-default") == "allchannels"


def _tracking(parameters: Parameters, value: int) -> None:
    parameters.targets.engine.limit_tracking(value)


def _replicas(parameters: Parameters, value: Any) -> None:
    replication = parameters.targets.services.replication
    if replication is not None:
        replication.check_writes()


def _backlog(parameters: Parameters, value: int) -> None:
    replication = parameters.targets.services.replication
    if replication is not None:
        replication.limit_backlog()


class Events(Kind):
    def parse(self, text: str) -> frozenset[str]:
        chosen = notifications.parse(text)
        if chosen is None:
            raise InvalidValue("Invalid event class character. Use 'Ag$lshzxetdKE'.")
        return chosen

    def show(self, value: Any) -> str:
        return notifications.show(value)


class OutputClasses(Kind):
    """Groups of four: class, hard limit, soft limit, seconds."""

    def parse(self, text: str) -> dict[str, Limit]:
        words = text.split()
        if not words or len(words) % 4:
            raise InvalidValue("Wrong number of arguments in buffer limit configuration.")
        found = {}
        for at in range(0, len(words), 4):
            name = {"slave": "replica"}.get(words[at].lower(), words[at].lower())
            if name not in ("normal", "replica", "pubsub"):
                raise InvalidValue("Invalid client class specified in buffer limit configuration.")
            try:
                hard, soft = (Memory().parse(word) for word in words[at + 1 : at + 3])
                seconds = Integer(0, 2**31).parse(words[at + 3])
            except InvalidValue:
                raise InvalidValue(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                ) from None
            found[name] = Limit(hard, soft, seconds)
        return found

    def show(self, value: dict[str, Limit]) -> str:
        return " ".join(
            f"{name.replace('replica', 'slave')} {limit.hard_bytes} {limit.soft_bytes} {limit.soft_seconds}"
            for name, limit in value.items()
        )


_OUTPUT = {
    "normal": Limit(0, 0, 0),
    "replica": Limit(256 << 20, 64 << 20, 60),
    "pubsub": Limit(32 << 20, 8 << 20, 60),
}
MOST = 2**63 - 1

# The one table.
PARAMETERS = (
    Parameter("maxmemory", Memory(), 0, _memory, key="kv.maxmemory"),
    Parameter("maxmemory-policy", Choice(POLICIES), "noeviction", _memory, key="kv.maxmemory_policy"),
    Parameter("maxmemory-samples", Integer(1, 64), 5, _memory, key="kv.maxmemory_samples"),
    Parameter("maxclients", Integer(1, 2**32 - 1), 10_000, _connections, key="kv.maxclients"),
    Parameter("timeout", Integer(0, 2**31 - 1), 0, _timeout, key="kv.timeout_s"),
    Parameter("busy-poll-us", Integer(0, 10_000), 50, _busy_poll, key="kv.busy_poll_us"),
    Parameter("requirepass", Text(), "", _password, key="kv.password", secret=True),
    Parameter("protected-mode", YesNo(), True, _connections, key="kv.protected_mode"),
    Parameter("notify-keyspace-events", Events(), frozenset(), _notify, key="kv.notify_keyspace_events"),
    Parameter("slowlog-log-slower-than", Integer(-1, MOST), 10_000, _slow, key="kv.slowlog_log_slower_than"),
    Parameter("slowlog-max-len", Integer(0, 2**31), 128, _slow, key="kv.slowlog_max_len"),
    Parameter("latency-monitor-threshold", Integer(0, MOST), 0, _slow, key="kv.latency_monitor_threshold_ms"),
    Parameter("latency-tracking", YesNo(), True),
    Parameter("latency-tracking-info-percentiles", Percentiles(), (50.0, 99.0, 99.9), _no_effect),
    Parameter(
        "client-output-buffer-limit", OutputClasses(), _OUTPUT, _output, key="kv.client_output_buffer_limit"
    ),
    Parameter("client-query-buffer-limit", Memory(1 << 20), 1 << 30, _requests),
    Parameter("proto-max-bulk-len", Memory(1 << 20), 512 << 20, _requests, key="kv.proto_max_bulk_len"),
    Parameter(
        "tracking-table-max-keys", Integer(0, MOST), 1_000_000, _tracking, key="kv.tracking_table_max_keys"
    ),
    Parameter("acllog-max-len", Integer(0, 2**31), 128, _acl),
    Parameter("acl-pubsub-default", Choice(("resetchannels", "allchannels")), "resetchannels", _acl),
    Parameter("aclfile", Text(), "", key="kv.acl_file"),
    Parameter("replica-read-only", YesNo(), True, _replicas, key="replication.replica_read_only"),
    Parameter("repl-backlog-size", Memory(1 << 16), 16 << 20, _backlog, key="replication.backlog_size"),
    Parameter(
        "min-replicas-to-write", Integer(0, 1000), 0, _replicas, key="replication.min_replicas_to_write"
    ),
    Parameter(
        "min-replicas-max-lag", Integer(0, 3600), 10, _replicas, key="replication.min_replicas_max_lag"
    ),
    Parameter("enable-debug-command", Choice(("no", "yes", "local")), "local"),
    # The sizes up to which OBJECT ENCODING reports a compact encoding.
    *(
        Parameter(name, Integer(-(2**31), 2**31), default, _no_effect)
        for name, default in (
            ("hash-max-listpack-entries", 512),
            ("hash-max-listpack-value", 64),
            ("list-max-listpack-size", -2),
            ("set-max-intset-entries", 512),
            ("set-max-listpack-entries", 128),
            ("set-max-listpack-value", 64),
            ("zset-max-listpack-entries", 128),
            ("zset-max-listpack-value", 64),
        )
    ),
    # These cannot be changed while the server runs.
    Parameter("databases", Integer(1, 128), 16, key="kv.databases"),
    Parameter("bind", Text(), "127.0.0.1", key="kv.listen_address"),
    Parameter("port", Integer(0, 65535), 6379, key="kv.port"),
    Parameter("tls-port", Integer(0, 65535), 0, key="kv.tls_port"),
    Parameter("unixsocket", Text(), "", key="kv.unix_socket"),
    Parameter("hz", Integer(1, 500), 10),
    Parameter("lfu-log-factor", Integer(0, 2**31), 10),
    Parameter("lfu-decay-time", Integer(0, 2**31), 1),
    Parameter("lazyfree-lazy-user-flush", YesNo(), True),
    Parameter("lazyfree-lazy-user-del", YesNo(), False),
    Parameter("cluster-enabled", YesNo(), False),
)
ALIASES = {
    "hash-max-ziplist-entries": "hash-max-listpack-entries",
    "hash-max-ziplist-value": "hash-max-listpack-value",
    "list-max-ziplist-size": "list-max-listpack-size",
    "zset-max-ziplist-entries": "zset-max-listpack-entries",
    "zset-max-ziplist-value": "zset-max-listpack-value",
}


class Parameters:
    """The present values."""

    def __init__(self, targets: Targets, *, databases: int) -> None:
        self.targets = targets
        self.file = ""  # the configuration's, for CONFIG REWRITE
        self.rows: dict[str, Parameter] = {}
        self._values: dict[str, Any] = {}
        for row in PARAMETERS:
            self.add(row)
        self._values["databases"] = databases

    def add(self, row: Parameter) -> None:
        """Adds a parameter; its default counts as its present value."""
        self.rows[row.name] = row
        self._values[row.name] = row.default

    def get(self, name: str) -> Any:
        return self._values[name]

    def put(self, name: str, value: Any) -> None:
        """Sets a value, even one that CONFIG SET refuses. Takes effect at once."""
        row = self.rows[name]
        self._values[name] = value
        if row.apply is not None:
            row.apply(self, value)

    def show(self, name: str) -> str:
        row = self.rows[ALIASES.get(name, name)]
        return row.kind.show(self._values[row.name])

    def names(self) -> list[str]:
        return [*self.rows, *(alias for alias, name in ALIASES.items() if name in self.rows)]

    def set(self, pairs: list[tuple[str, str]]) -> None:
        """Sets all of them or none. CommandError names the wrong one."""
        chosen: dict[str, Any] = {}
        for given, text in pairs:
            name = ALIASES.get(given.lower(), given.lower())
            row = self.rows.get(name)
            if row is None:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{given}'")
            if name in chosen:
                raise _failed(given, "duplicate parameter")
            if row.apply is None:
                raise _failed(given, "can't set immutable config")
            try:
                chosen[name] = row.kind.parse(text)
            except InvalidValue as error:
                raise _failed(given, str(error)) from None
        before = {name: self._values[name] for name in chosen}
        try:
            for name, value in chosen.items():
                merged = {**before[name], **value} if isinstance(value, dict) else value
                self.put(name, merged)
        except Exception as error:
            for name, value in before.items():
                self.put(name, value)
            if isinstance(error, CommandError):
                raise
            raise _failed(name, str(error)) from error

    def for_file(self) -> dict[str, tuple[str, bool]]:
        """Returns the keys of verbena.toml that CONFIG SET can change: value as text, and whether it is the
        default."""
        return {
            row.key: (row.kind.show(self._values[row.name]), self._values[row.name] == row.default)
            for row in self.rows.values()
            if row.key and row.apply is not None
        }


def _failed(name: str, why: str) -> CommandError:
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
