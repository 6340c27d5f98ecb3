"""The Grafana dashboard of stores, deploy/grafana/verbena-store.json: one panel for each row of the table
below. tools/reference.py writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dashboard import HERE, Target, document, panel
from store_queries import Queries

_OVER = "$__rate_interval"
_TIMES = "verbena_store_command_seconds"


def panels() -> Iterator[tuple[str, str, tuple[Target, ...]]]:
    """Yields title, unit, and expressions with legends."""
    q = Queries(HERE)

    def rate(name: str, *by: str) -> str:
        return q.rate(name, *by, over=_OVER)

    def each(*rows: tuple[str, str]) -> tuple[Target, ...]:
        return tuple((q.select(name), f"{{{{instance}}}} {legend}".strip()) for name, legend in rows)

    hits, misses = rate("redis_keyspace_hits_total"), rate("redis_keyspace_misses_total")
    yield "Up", "bool", each(("redis_up", ""))
    yield "Commands", "ops", ((rate("redis_commands_total", "cmd"), "{{instance}} {{cmd}}"),)
    for percent in (50, 99):
        times = q.quantile(percent, _TIMES, "cmd", over=_OVER)
        yield f"Duration of commands, p{percent}", "s", ((times, "{{instance}} {{cmd}}"),)
    yield (
        "Memory",
        "bytes",
        each(
            ("redis_memory_used_bytes", "used"),
            ("redis_memory_used_rss_bytes", "resident"),
            ("redis_memory_used_peak_bytes", "peak"),
            ("redis_memory_max_bytes", "limit"),
        ),
    )
    yield "Fragmentation", "short", each(("redis_mem_fragmentation_ratio", ""))
    yield (
        "Keys",
        "short",
        (
            (q.select("redis_db_keys"), "{{instance}} {{db}}"),
            (q.select("redis_db_keys_expiring"), "{{instance}} {{db}} expiring"),
        ),
    )
    yield "Hit rate", "percentunit", ((f"{hits} / ({hits} + {misses} > 0)", "{{instance}}"),)
    yield (
        "Expired and evicted keys",
        "ops",
        (
            (rate("redis_expired_keys_total"), "{{instance}} expired"),
            (rate("redis_evicted_keys_total"), "{{instance}} evicted"),
        ),
    )
    yield (
        "Clients",
        "short",
        (
            (q.select("verbena_store_clients"), "{{instance}} {{frontend}}"),
            (q.select("redis_blocked_clients"), "{{instance}} blocked"),
        ),
    )
    yield (
        "Network",
        "Bps",
        (
            (rate("redis_net_input_bytes_total"), "{{instance}} in"),
            (rate("redis_net_output_bytes_total"), "{{instance}} out"),
        ),
    )
    yield (
        "Rejected and disconnected clients",
        "ops",
        tuple(
            (rate(name), f"{{{{instance}}}} {legend}")
            for name, legend in (
                ("redis_rejected_connections_total", "rejected"),
                ("redis_client_query_buffer_limit_disconnections_total", "input limit"),
                ("redis_client_output_buffer_limit_disconnections_total", "output limit"),
                ("redis_acl_access_denied_auth_total", "wrong password"),
            )
        ),
    )
    yield "Error replies", "ops", ((rate("redis_errors_total", "err"), "{{instance}} {{err}}"),)
    yield "Slow log", "short", each(("redis_slowlog_length", ""))
    yield "One-sided reads: memory leases", "short", each(("verbena_store_memory_leases", ""))
    yield (
        "Replicas",
        "short",
        (*each(("redis_connected_slaves", "replicas"), ("redis_master_link_up", "link to the primary")),),
    )
    yield (
        "Replica lag, bytes",
        "bytes",
        ((q.select("verbena_store_replica_lag_bytes"), "{{instance}} {{slave_ip}}:{{slave_port}}"),),
    )
    yield (
        "Replica lag, time",
        "s",
        (
            (
                q.select("redis_connected_slave_lag_seconds"),
                "{{instance}} {{slave_ip}}:{{slave_port}} silent",
            ),
            (q.select("verbena_store_replication_lag_seconds"), "{{instance}} p{{quantile}}"),
        ),
    )
    yield (
        "Snapshot and log",
        "bytes",
        each(("redis_aof_current_size_bytes", "size"), ("redis_mem_aof_buffer_bytes", "buffered")),
    )
    yield (
        "Persistence",
        "short",
        each(
            ("redis_aof_last_write_status", "log is writable"),
            ("redis_rdb_last_bgsave_status", "snapshot succeeded"),
            ("verbena_store_log_unsynced_records", "records not on disk"),
        ),
    )
    yield (
        "Cluster: slots",
        "short",
        each(("redis_cluster_slots_ok", "served"), ("verbena_cluster_slots_owned", "owned")),
    )
    yield (
        "Cluster: members and moves",
        "short",
        (
            (q.select("verbena_cluster_members"), "{{instance}} {{health}}"),
            (q.select("verbena_cluster_moves"), "{{instance}} moves {{direction}}"),
        ),
    )
    yield "Cluster: lease", "s", each(("verbena_cluster_lease_remaining_seconds", ""))


def dashboard() -> dict[str, Any]:
    """Returns the dashboard of stores."""
    made = [panel(place, title, unit, *targets) for place, (title, unit, targets) in enumerate(panels())]
    return document("Verbena store", "verbena-store", "redis", "verbena_store_build_info", made)


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"
