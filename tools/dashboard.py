"""The Grafana dashboard of nodes, deploy/grafana/verbena.json: one panel for each row of the table below.
tools/reference.py writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

HERE = 'instance=~"$instance"'

# Title, unit, expression, legend.
PANELS: tuple[tuple[str, str, str, str], ...] = (
    (
        "Links by wire",
        "short",
        f"sum by (wire) (verbena_rdma_connections{{{HERE}}})",
        "{{wire}}",
    ),
    (
        "Sessions by state and wire",
        "short",
        f"sum by (state, wire) (verbena_sessions{{{HERE}}})",
        "{{state}} {{wire}}",
    ),
    (
        "Operations",
        "ops",
        f"sum by (type, wire) (rate(verbena_rdma_operations_total{{{HERE}}}[$__rate_interval]))",
        "{{type}} {{wire}}",
    ),
    (
        "Bytes",
        "Bps",
        f"sum by (type, wire) (rate(verbena_rdma_bytes_total{{{HERE}}}[$__rate_interval]))",
        "{{type}} {{wire}}",
    ),
    *(
        (
            f"Latency, {label}",
            "s",
            f"histogram_quantile({quantile}, sum by (op, wire, le)"
            f" (rate(verbena_rdma_latency_seconds_bucket{{{HERE}}}[$__rate_interval])))",
            "{{op}} {{wire}}",
        )
        for label, quantile in (("p50", 0.5), ("p99", 0.99))
    ),
    (
        "New links",
        "short",
        f"sum by (wire) (increase(verbena_session_links_total{{{HERE}}}[$__rate_interval]))",
        "{{wire}}",
    ),
    (
        "Failed work requests",
        "short",
        f"sum by (wire) (increase(verbena_rdma_completion_errors_total{{{HERE}}}[$__rate_interval]))",
        "{{wire}}",
    ),
    (
        "Retransmitted, duplicate and corrupted messages",
        "short",
        'sum by (__name__, wire) (increase({__name__=~"verbena_session_messages_replayed_total|'
        f'verbena_session_duplicates_dropped_total|verbena_session_messages_damaged_total",{HERE}}}'
        "[$__rate_interval]))",
        "{{__name__}} {{wire}}",
    ),
    (
        "Rejected connections",
        "short",
        f"sum by (reason) (increase(verbena_refused_total{{{HERE}}}[$__rate_interval]))",
        "{{reason}}",
    ),
    (
        "Buffers in use",
        "percentunit",
        f"verbena_pool_slots_used{{{HERE}}} / (verbena_pool_slots{{{HERE}}} > 0)",
        "{{pool}} {{wire}}",
    ),
    (
        "Registered memory in the cache",
        "bytes",
        f"verbena_registration_cache_bytes{{{HERE}}}",
        "{{instance}}",
    ),
)


Target = tuple[str, str]  # expression, legend


def panel(place: int, title: str, unit: str, *targets: Target) -> dict[str, Any]:
    return {
        "id": place + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 10}}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(targets)
        ],
    }


def dashboard() -> dict[str, Any]:
    """Returns the dashboard of nodes."""
    panels = [
        panel(place, title, unit, (expression, legend))
        for place, (title, unit, expression, legend) in enumerate(PANELS)
    ]
    return document("Verbena", "verbena", "rdma", "verbena_node_info", panels)


def document(
    title: str, uid: str, tag: str, instances: str, panels: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Returns a dashboard. Its variable offers the instances of the metric `instances`."""
    return {
        "title": title,
        "uid": uid,
        "tags": ["verbena", tag],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "type": "query",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "query": f"label_values({instances}, instance)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": list(panels),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"
