"""The panels that the store adds to the node's page when `verbena serve` runs."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import redis
from support.kv.store_page import store_with_page


def panels(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/status.json", timeout=20) as answer:
        return {panel["title"]: panel for panel in json.load(answer)["panels"]}


def test_the_stores_page_has_keyspace_commands_and_shards(tmp_path: Path) -> None:
    """`verbena serve` with [metrics] listen: statistics of its keys and, in a cluster, the map."""
    cluster = ("--cluster-enabled", "--kv-persistence-dir", str(tmp_path / "n1"))
    environment = {"VERBENA_CLUSTER_MAP_STORE": f"sqlite://{tmp_path}/map.db"}
    with store_with_page("n1", *cluster, environment=environment) as (banner, page):
        (port,) = re.findall(r"redis-cli -p (\d+)", banner)
        with redis.Redis(port=int(port)) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            client.set("key", "value", ex=1000)
            client.get("key")
            found = panels(page)
    assert "http://" in banner
    assert found["Keyspace"]["rows"] == [["db0", "1", "1"]]
    assert any(row[0] == "set" for row in found["Commands"]["rows"])
    assert found["Replication"]["fields"]["role"] == "master"
    (shard,) = found["Shards"]["rows"]
    assert shard[0] == "n1 (this node)"
    assert shard[3] == {"progress": 1.0}
    assert found["Moves"]["rows"] == []
    assert not [panel for panel in found.values() if "failure" in panel]
