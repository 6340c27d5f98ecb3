"""Metrics of replication and persistence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verbena.kv.observe.rows import Kind, StoreMetric, of_info
from verbena.kv.observe.snapshot import ReplicaState, StoreSnapshot
from verbena.transport.observe.metrics.metric import Metric, Sample, Value

_REPLICA = ("slave_ip", "slave_port")
_REPLICA_AND_STATE = (*_REPLICA, "slave_state")
_PRIMARY = ("master_host", "master_port")
_SYNCS = {"full": "sync_full", "partial": "sync_partial_ok", "refused": "sync_partial_err"}


def _of_replicas(
    name: str, labels: tuple[str, ...], help: str, value: Callable[[ReplicaState], Value]
) -> StoreMetric:
    def read(now: StoreSnapshot) -> Iterable[Sample]:
        for replica in now.replicas:
            yield (replica.host, replica.port, replica.state)[: len(labels)], value(replica)

    return Metric(name, "gauge", labels, help, read, "INFO `slave0`…")


def _of_primary(name: str, field: str, help: str) -> StoreMetric:
    """A metric that only a replica has."""

    def read(now: StoreSnapshot) -> Iterable[Sample]:
        if "master_host" not in now.fields:
            return []
        value = now.fields[field]
        place = (str(now.fields["master_host"]), str(now.fields["master_port"]))
        return [(place, int(value == "up") if isinstance(value, str) else value)]

    return Metric(name, "gauge", _PRIMARY, help, read, f"INFO `{field}`")


def _lags(now: StoreSnapshot) -> Iterable[Sample]:
    for label, percent in (("0.5", 50), ("0.99", 99)):
        if (field := f"replica_lag_p{percent}_us") in now.fields:
            yield (label,), now.fields[field] / 1e6


def _unsynced(now: StoreSnapshot) -> Iterable[Sample]:
    fields = now.fields
    return [((), fields["log_lsn"] - fields["log_durable_lsn"])] if "log_lsn" in fields else []


def _longest_fsync(now: StoreSnapshot) -> Iterable[Sample]:
    field = "log_longest_sync_us"
    return [((), now.fields[field] / 1e6)] if field in now.fields else []


def _log(name: str, kind: Kind, field: str, help: str) -> StoreMetric:
    return of_info(f"verbena_store_log_{name}", kind, field, help)


ROWS: tuple[StoreMetric, ...] = (
    of_info("redis_connected_slaves", "gauge", "connected_slaves", "Replicas that are linked."),
    of_info("redis_master_repl_offset", "gauge", "master_repl_offset", "End of the log, in bytes."),
    of_info(
        "redis_repl_backlog_history_bytes",
        "gauge",
        "repl_backlog_histlen",
        "The part of the log from which a replica can continue.",
    ),
    _of_replicas(
        "redis_connected_slave_offset_bytes",
        _REPLICA_AND_STATE,
        "What the replica has applied of the log.",
        lambda replica: replica.offset,
    ),
    _of_replicas(
        "redis_connected_slave_lag_seconds",
        _REPLICA_AND_STATE,
        "Time since the replica's last receipt.",
        lambda replica: round(replica.silent_s, 6),
    ),
    _of_replicas(
        "verbena_store_replica_lag_bytes",
        _REPLICA,
        "What the replica has not applied yet of the log.",
        lambda replica: replica.lag_bytes,
    ),
    _of_replicas(
        "verbena_store_replica_online",
        _REPLICA,
        "1 if the replica is linked and has a complete copy, else 0.",
        lambda replica: int(replica.state == "online"),
    ),
    _of_primary("redis_master_link_up", "master_link_status", "1 if this replica follows its primary."),
    _of_primary(
        "redis_master_last_io_seconds_ago",
        "master_last_io_seconds_ago",
        "Time since the primary was last heard; -1: the link is down.",
    ),
    _of_primary(
        "redis_master_sync_in_progress",
        "master_sync_in_progress",
        "1 while this replica receives a base copy.",
    ),
    _of_primary("redis_slave_repl_offset", "slave_repl_offset", "What this replica has of the log."),
    Metric(
        "verbena_store_replication_lag_seconds",
        "gauge",
        ("quantile",),
        "On a replica: time from a change at the primary until it was applied, in the last eight seconds.",
        _lags,
        "INFO `replica_lag_p50_us`, `replica_lag_p99_us`",
    ),
    Metric(
        "verbena_store_replication_syncs_total",
        "counter",
        ("kind",),
        "Replicas that began to follow: `full` with a base copy, `partial` without; `refused` are full ones "
        "whose position the backlog no longer had.",
        lambda now: [((kind,), now.fields[field]) for kind, field in _SYNCS.items()],
        "INFO `sync_full`…",
    ),
    of_info(
        "verbena_store_replication_damaged_pieces",
        "gauge",
        "replica_damaged_pieces",
        "On a replica: pieces of the log with a wrong checksum, since the link began.",
    ),
    of_info("redis_loading_dump_file", "gauge", "loading", "1 while the store loads its files."),
    of_info(
        "redis_rdb_changes_since_last_save",
        "gauge",
        "rdb_changes_since_last_save",
        "Changes since the last snapshot. With a log they are on disk all the same.",
    ),
    of_info("redis_rdb_bgsave_in_progress", "gauge", "rdb_bgsave_in_progress", "1 during a snapshot."),
    of_info(
        "redis_rdb_last_save_timestamp_seconds",
        "gauge",
        "rdb_last_save_time",
        "Unix time of the last snapshot; without one, of the start.",
    ),
    of_info(
        "redis_rdb_last_bgsave_status",
        "gauge",
        "rdb_last_bgsave_status",
        "1 if the last snapshot succeeded, else 0.",
    ),
    of_info(
        "redis_rdb_last_bgsave_duration_sec",
        "gauge",
        "rdb_last_bgsave_time_sec",
        "Duration of the last snapshot in seconds; -1: there was none.",
    ),
    of_info(
        "verbena_store_snapshot_consecutive_failures",
        "gauge",
        "aof_rewrites_consecutive_failures",
        "Snapshots that failed since the last success.",
    ),
    of_info("redis_aof_enabled", "gauge", "aof_enabled", "1 if there is a log on disk."),
    of_info("redis_aof_current_size_bytes", "gauge", "aof_current_size", "Size of snapshot and log."),
    of_info("redis_aof_base_size_bytes", "gauge", "aof_base_size", "Size of the snapshot."),
    of_info(
        "redis_aof_last_write_status",
        "gauge",
        "aof_last_write_status",
        "0 if the log cannot be written: the store then refuses writes.",
    ),
    of_info("redis_aof_pending_bio_fsync", "gauge", "aof_pending_bio_fsync", "1 while an fsync runs."),
    _log("failures_total", "counter", "log_failures", "Times at which writes or fsyncs began to fail."),
    _log("fsyncs_total", "counter", "log_syncs", "Completed fsyncs of the log."),
    _log("delayed_fsyncs_total", "counter", "aof_delayed_fsync", "Fsyncs that began late, since one ran."),
    Metric(
        "verbena_store_log_longest_fsync_seconds",
        "gauge",
        (),
        "The longest fsync so far.",
        _longest_fsync,
        "INFO `log_longest_sync_us`",
    ),
    Metric(
        "verbena_store_log_unsynced_records",
        "gauge",
        (),
        "Records of the log that a loss of power would lose.",
        _unsynced,
        "INFO `log_lsn`, `log_durable_lsn`",
    ),
)
