"""Metrics of memory, keys and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate

from verbena.kv.observe.rows import StoreMetric, by_label, of_info
from verbena.kv.observe.snapshot import StoreSnapshot
from verbena.kv.server.counters import CommandStats
from verbena.transport.observe.metrics.metric import Buckets, Metric, Sample, Value

_FIRST, _LAST = 8, 33  # buckets below 256 ns and below 8.6 s
_BOUNDS = tuple(f"{2**bucket / 1e9:.12g}" for bucket in range(_FIRST, _LAST + 1))


def _databases(place: int) -> Callable[[StoreSnapshot], Iterable[Sample]]:
    """Database 0, and the others that have keys."""
    return lambda now: [((f"db{row[0]}",), row[place]) for row in now.databases if row[1] or not row[0]]


def _times(stats: CommandStats) -> Buckets:
    below = list(accumulate(stats.buckets))
    return Buckets(_BOUNDS, below[_FIRST : _LAST + 1], below[-1], stats.ns / 1e9)


def _of_commands(name: str, help: str, value: Callable[[CommandStats], Value]) -> StoreMetric:
    def read(now: StoreSnapshot) -> Iterable[Sample]:
        return by_label({command: value(stats) for command, stats in now.commands.items()})

    return Metric(name, "counter", ("cmd",), help, read, "INFO `commandstats`")


ROWS: tuple[StoreMetric, ...] = (
    of_info(
        "redis_memory_used_bytes",
        "gauge",
        "used_memory",
        "Memory of keys and values; the value that is compared with the limit.",
    ),
    of_info("redis_memory_max_bytes", "gauge", "maxmemory", "The limit of memory; 0: there is none."),
    of_info("redis_memory_used_peak_bytes", "gauge", "used_memory_peak", "The largest use so far."),
    of_info("redis_memory_used_rss_bytes", "gauge", "used_memory_rss", "Resident memory of the process."),
    of_info(
        "redis_mem_fragmentation_ratio",
        "gauge",
        "mem_fragmentation_ratio",
        "Resident memory divided by used memory.",
    ),
    of_info(
        "redis_mem_fragmentation_bytes",
        "gauge",
        "mem_fragmentation_bytes",
        "Resident memory minus used memory.",
    ),
    of_info("redis_allocator_active_bytes", "gauge", "allocator_active", "Memory of the engine's chunks."),
    of_info(
        "redis_allocator_allocated_bytes",
        "gauge",
        "allocator_allocated",
        "Used memory in the engine's chunks.",
    ),
    of_info("redis_total_system_memory_bytes", "gauge", "total_system_memory", "Memory of the machine."),
    of_info(
        "redis_mem_aof_buffer_bytes",
        "gauge",
        "mem_aof_buffer",
        "Records of the log that are not written to its file yet.",
    ),
    of_info(
        "redis_mem_replication_backlog_bytes",
        "gauge",
        "mem_replication_backlog",
        "Memory of the replication backlog.",
    ),
    of_info(
        "redis_lazyfree_pending_objects",
        "gauge",
        "lazyfree_pending_objects",
        "Deleted values that are not freed yet.",
    ),
    Metric("redis_db_keys", "gauge", ("db",), "Keys.", _databases(1), "INFO `keyspace`"),
    Metric(
        "redis_db_keys_expiring",
        "gauge",
        ("db",),
        "Keys with a time to live.",
        _databases(2),
        "INFO `keyspace`",
    ),
    of_info(
        "redis_keyspace_hits_total",
        "counter",
        "keyspace_hits",
        "Look-ups that found the key; without one-sided reads.",
    ),
    of_info("redis_keyspace_misses_total", "counter", "keyspace_misses", "Look-ups that found no key."),
    of_info("redis_expired_keys_total", "counter", "expired_keys", "Keys removed at the end of their time."),
    of_info("redis_evicted_keys_total", "counter", "evicted_keys", "Keys removed to make room."),
    of_info("redis_commands_processed_total", "counter", "total_commands_processed", "Commands."),
    of_info(
        "verbena_store_python_commands_total",
        "counter",
        "total_commands_by_program",
        "Commands that Python ran; the engine ran the others natively.",
    ),
    _of_commands("redis_commands_total", "Calls, by command.", lambda stats: stats.calls),
    _of_commands(
        "redis_commands_duration_seconds_total",
        "Time in commands.",
        lambda stats: stats.ns / 1e9,
    ),
    _of_commands(
        "redis_commands_rejected_calls_total",
        "Calls refused before the command ran.",
        lambda stats: stats.rejected,
    ),
    _of_commands(
        "redis_commands_failed_calls_total",
        "Calls that returned an error.",
        lambda stats: stats.failed,
    ),
    Metric(
        "verbena_store_command_seconds",
        "histogram",
        ("cmd",),
        "Duration of commands in the store.",
        lambda now: by_label({name: _times(stats) for name, stats in now.commands.items()}),
        "INFO `latencystats`",
    ),
    Metric(
        "redis_errors_total",
        "counter",
        ("err",),
        "Error replies, by code.",
        lambda now: by_label(dict(now.errors)),
        "INFO `errorstats`",
    ),
    Metric(
        "redis_slowlog_length",
        "gauge",
        (),
        "Entries of the slow log.",
        lambda now: [((), now.slowlog["length"])],
        "SLOWLOG LEN",
    ),
    Metric(
        "redis_slowlog_last_id",
        "gauge",
        (),
        "Number of the latest entry of the slow log.",
        lambda now: [((), now.slowlog["last_id"])] if "last_id" in now.slowlog else [],
        "SLOWLOG GET",
    ),
    Metric(
        "redis_last_slow_execution_duration_seconds",
        "gauge",
        (),
        "Duration of the latest entry of the slow log.",
        lambda now: [((), now.slowlog["last_s"])] if "last_s" in now.slowlog else [],
        "SLOWLOG GET",
    ),
)
