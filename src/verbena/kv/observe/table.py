"""The table of a store's metrics. The Prometheus text, docs/reference/metrics.md, the Grafana dashboard and
the alert rules are generated from it."""

from __future__ import annotations

from typing import Any

from verbena.kv.observe import cluster_rows, data_rows, keyspace_rows, server_rows
from verbena.kv.observe.rows import StoreMetric
from verbena.kv.observe.snapshot import ProcessState
from verbena.transport.observe.metrics.metric import Metric, table_rows

# These are shown even if the engine does not answer.
PROCESS_METRICS: tuple[Metric[ProcessState], ...] = (
    Metric(
        "redis_up",
        "gauge",
        (),
        "1 if the engine has answered the scrape. If it is 0, only the metrics of the process are shown.",
        lambda now: [((), int(now.is_up))],
        "engine",
    ),
    Metric(
        "redis_uptime_in_seconds",
        "gauge",
        (),
        "Time since the start.",
        lambda now: [((), now.uptime_s)],
        "INFO `uptime_in_seconds`",
    ),
    Metric(
        "redis_start_time_seconds",
        "gauge",
        (),
        "Unix time of the start.",
        lambda now: [((), round(now.started_s, 3))],
        "process",
    ),
    Metric(
        "verbena_store_build_info",
        "gauge",
        ("version", "python"),
        "Always 1; the labels are the versions of Verbena and Python.",
        lambda now: [((now.version, now.python), 1)],
        "INFO `verbena_version`, `python_version`",
    ),
)

STORE_METRICS: tuple[StoreMetric, ...] = (
    *server_rows.ROWS,
    *keyspace_rows.ROWS,
    *data_rows.ROWS,
    *cluster_rows.ROWS,
)

METRICS: tuple[Metric[Any], ...] = (*PROCESS_METRICS, *STORE_METRICS)

_PAGE_HEAD = """
## Store

The node of `verbena serve` serves these in addition. Names that begin with `redis_` are those of
[redis_exporter](https://github.com/oliver006/redis_exporter), with its types, labels and units, so that
dashboards and alerts made for it work ([why](../design/0039-store-metrics.md)); no exporter needs to run.
`CONFIG RESETSTAT` sets counters to 0.

"""
_PAGE_FOOT = """
- Collecting costs the engine less than a millisecond, whatever the number of keys and clients.
- If the engine does not answer within 0.9 s, `redis_up` is 0. A process that does not answer at all has no
  sample but Prometheus' own `up`, which is 0.
- `frontend` is tcp, tls, unix, session, rdma (Valkey over RDMA), or internal for the clients with which a
  store applies logs. `db` is db0, or a database that has keys. `cmd` is a command that was called, in lower
  case, with its subcommand (`config|get`).
- Metrics of a log are there if persistence is on, those of a primary on a replica, those of a cluster in a
  cluster.
- The buckets of the histogram range from 256 ns to 8.6 s; the bounds are powers of two in nanoseconds.

redis_exporter has these under other names or with other units:

| redis_exporter | here |
|---|---|
| `redis_commands_latencies_usec`, `redis_latency_percentiles_usec` | `verbena_store_command_seconds` |
| `redis_replica_resyncs_full` | `verbena_store_replication_syncs_total{kind="full"}` |
| `redis_replica_partial_resync_accepted` | `verbena_store_replication_syncs_total{kind="partial"}` |
| `redis_replica_partial_resync_denied` | `verbena_store_replication_syncs_total{kind="refused"}` |
| `redis_aof_delayed_fsync` | `verbena_store_log_delayed_fsyncs_total` |
"""


def page() -> str:
    """Returns the part of docs/reference/metrics.md about stores."""
    return _PAGE_HEAD + "".join(table_rows(METRICS, with_source=True)) + _PAGE_FOOT
