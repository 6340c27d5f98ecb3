"""Metrics of the server: identity, clients, network, pub/sub, sessions."""

from __future__ import annotations

from collections.abc import Iterable

from verbena.kv.observe.rows import StoreMetric, by_label, of_info, of_session
from verbena.kv.observe.snapshot import StoreSnapshot
from verbena.transport.observe.metrics.metric import Metric, Sample

_INFO_LABELS = (
    "role",
    "redis_version",
    "redis_mode",
    "os",
    "maxmemory_policy",
    "tcp_port",
    "run_id",
    "process_id",
    "master_replid",
)


def _instance(now: StoreSnapshot) -> Iterable[Sample]:
    return [(tuple(str(now.fields[label]) for label in _INFO_LABELS), 1)]


def _denied(name: str, what: str) -> StoreMetric:
    field = f"acl_access_denied_{name}"
    return of_info(f"redis_{field}_total", "counter", field, f"Requests refused by an ACL: {what}.")


ROWS: tuple[StoreMetric, ...] = (
    Metric(
        "redis_instance_info",
        "gauge",
        _INFO_LABELS,
        "Always 1; the labels describe the store. `role` is master or slave.",
        _instance,
        "INFO `server`, `replication`",
    ),
    of_info("redis_cpu_sys_seconds_total", "counter", "used_cpu_sys", "Processor time in the kernel."),
    of_info("redis_cpu_user_seconds_total", "counter", "used_cpu_user", "Processor time in user mode."),
    of_info("redis_connected_clients", "gauge", "connected_clients", "Clients, without replicas."),
    of_info("redis_blocked_clients", "gauge", "blocked_clients", "Clients whose command waits."),
    of_info("redis_max_clients", "gauge", "maxclients", "The limit of clients."),
    of_info("redis_tracking_clients", "gauge", "tracking_clients", "Clients with client-side caching."),
    Metric(
        "verbena_store_clients",
        "gauge",
        ("frontend",),
        "Clients and replicas by frontend.",
        lambda now: by_label(dict(now.clients)),
        "frontends",
    ),
    of_info(
        "redis_connections_received_total",
        "counter",
        "total_connections_received",
        "Accepted clients.",
    ),
    of_info(
        "redis_rejected_connections_total",
        "counter",
        "rejected_connections",
        "Connections rejected by `maxclients`, protected mode, or for want of descriptors.",
    ),
    of_info(
        "redis_client_query_buffer_limit_disconnections_total",
        "counter",
        "client_query_buffer_limit_disconnections",
        "Clients disconnected because their input exceeded its limit.",
    ),
    of_info(
        "redis_client_output_buffer_limit_disconnections_total",
        "counter",
        "client_output_buffer_limit_disconnections",
        "Clients disconnected because their output exceeded its limit.",
    ),
    _denied("auth", "wrong name or password"),
    _denied("cmd", "the command"),
    _denied("key", "a key"),
    _denied("channel", "a channel"),
    of_info(
        "redis_net_input_bytes_total",
        "counter",
        "total_net_input_bytes",
        "Bytes received from clients.",
    ),
    of_info(
        "redis_net_output_bytes_total",
        "counter",
        "total_net_output_bytes",
        "Bytes sent to clients; one-sided reads are not visible to the store.",
    ),
    of_info("redis_pubsub_channels", "gauge", "pubsub_channels", "Channels with a subscriber."),
    of_info("redis_pubsub_patterns", "gauge", "pubsub_patterns", "Patterns with a subscriber."),
    of_session(
        "verbena_store_session_requests_total",
        "counter",
        "requests",
        "Calls of clients over sessions.",
    ),
    of_session(
        "verbena_store_memory_leases",
        "gauge",
        "memory_leases",
        "Clients over sessions that may read the store's memory one-sided.",
    ),
    of_session(
        "verbena_store_memory_leases_granted_total",
        "counter",
        "memory_leases_granted",
        "Memory leases granted for one-sided reads.",
    ),
)
