"""The table of a store's metrics: documented, named as others name them, and cheap to collect."""

from __future__ import annotations

import re
import time
from pathlib import Path

from verbena.kv.observe import table
from verbena.kv.observe.collect import collect
from verbena.kv.server.server import Server
from verbena.transport.observe.metrics import table as node_table

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"

# What the dashboards of redis_exporter ask for, as far as a present exporter still has it.
OF_DASHBOARDS = {
    "redis_blocked_clients",
    "redis_commands_duration_seconds_total",
    "redis_commands_total",
    "redis_connected_clients",
    "redis_connected_slaves",
    "redis_db_keys",
    "redis_db_keys_expiring",
    "redis_evicted_keys_total",
    "redis_expired_keys_total",
    "redis_keyspace_hits_total",
    "redis_keyspace_misses_total",
    "redis_master_last_io_seconds_ago",
    "redis_mem_fragmentation_ratio",
    "redis_memory_max_bytes",
    "redis_memory_used_bytes",
    "redis_memory_used_rss_bytes",
    "redis_net_input_bytes_total",
    "redis_net_output_bytes_total",
    "redis_total_system_memory_bytes",
    "redis_up",
    "redis_uptime_in_seconds",
}


def test_collecting_takes_no_longer_with_more_keys_and_clients() -> None:
    """The shortest of many times, since other programs run on this machine."""
    server = Server()
    try:
        few = _shortest(server)
        database = server.databases[0]
        for number in range(100_000):
            database.put(b"key:%d" % number, b"value")
        for number in range(1, 2000):
            server.clients.ensure(number)
        many = _shortest(server)
        assert collect(server).databases[0][1] == 100_000
    finally:
        server.close()
    assert many < 0.002
    assert many < 4 * few + 0.0002


def _shortest(server: Server) -> float:
    times = []
    for _ in range(30):
        began = time.perf_counter()
        collect(server)
        times.append(time.perf_counter() - began)
    return min(times)


def test_the_reference_has_every_metric() -> None:
    """docs/reference/metrics.md and the tables agree."""
    text = PAGE.read_text()
    assert text == node_table.page() + table.page()
    named = re.findall(r"^\| `((?:redis|verbena)_\w+)` \| (?:counter|gauge|histogram) \|", text, re.MULTILINE)
    assert named == [metric.name for metric in (*node_table.METRICS, *table.METRICS)]
    assert len(set(named)) == len(named)
    assert all(metric.help.endswith(".") and metric.source for metric in table.METRICS)


def test_names_follow_prometheus_and_redis_exporter() -> None:
    """Counters end in _total, and dashboards made for redis_exporter find what they ask for."""
    names = {metric.name for metric in table.METRICS}
    assert names >= OF_DASHBOARDS
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in table.METRICS)
    assert all(name.startswith(("redis_", "verbena_store_", "verbena_cluster_")) for name in names)
