"""Writes deploy/grafana/verbena.json, the Grafana dashboard: one panel for each row of the table below."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "deploy/grafana/verbena.json"
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


def panel(place: int, title: str, unit: str, expression: str, legend: str) -> dict[str, Any]:
    return {
        "id": place + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 10}}, "overrides": []},
        "targets": [{"refId": "A", "expr": expression, "legendFormat": legend}],
    }


def dashboard() -> dict[str, Any]:
    return {
        "title": "Verbena",
        "uid": "verbena",
        "tags": ["verbena", "rdma"],
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
                    "query": "label_values(verbena_node_info, instance)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [panel(place, *row) for place, row in enumerate(PANELS)],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
    print(f"{TARGET.relative_to(ROOT)}: written")
