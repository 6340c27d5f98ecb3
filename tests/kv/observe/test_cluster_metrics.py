"""The metrics of replication and of a cluster, at each of their nodes."""

from __future__ import annotations

import re
from pathlib import Path

import redis
from support.kv.scraped import scrape, until
from support.kv.store_page import store_with_page


def test_a_primary_and_its_replica_show_the_link() -> None:
    with store_with_page("n1") as (banner, page):
        (port,) = re.findall(r"redis-cli -p (\d+)", banner)
        primary = ("127.0.0.1", port)
        with (
            redis.Redis(port=int(port)) as client,
            store_with_page("n2", "--replication-replicaof", ":".join(primary)) as (_, replica),
        ):
            until(replica, lambda now: now.of("redis_master_link_up") == {primary: 1})
            client.set("key", "value")
            end = client.info("replication")["master_repl_offset"]
            followed = until(replica, lambda now: now.of("redis_slave_repl_offset")[primary] >= end > 0)
            assert followed("verbena_store_clients", frontend="internal") == 1
            assert set(followed.of("verbena_store_replication_lag_seconds")) == {("0.5",), ("0.99",)}
            now = until(page, lambda now: set(now.of("verbena_store_replica_lag_bytes").values()) == {0})
            assert now("redis_connected_slaves") == 1
            assert set(now.of("verbena_store_replica_online").values()) == {1}
            (state,) = {labels[-1] for labels in now.of("redis_connected_slave_lag_seconds")}
            assert state == "online"
            assert now("verbena_store_replication_syncs_total", kind="full") == 1
        gone = until(page, lambda now: now("redis_connected_slaves") == 0)
        assert gone("redis_up") == 1


def test_a_node_of_a_cluster_shows_its_slots_and_its_lease(tmp_path: Path) -> None:
    cluster = ("--cluster-enabled", "--kv-persistence-dir", str(tmp_path / "n1"))
    environment = {"VERBENA_CLUSTER_MAP_STORE": f"sqlite://{tmp_path}/map.db"}
    with store_with_page("n1", *cluster, environment=environment) as (banner, page):
        (port,) = re.findall(r"redis-cli -p (\d+)", banner)
        empty = scrape(page)
        with redis.Redis(port=int(port)) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16000)
            now = until(page, lambda now: now("verbena_cluster_slots_owned"))
            fields = client.execute_command("CLUSTER INFO")
    assert (empty("redis_cluster_enabled"), empty("redis_cluster_slots_assigned")) == (1, 0)
    assert now("verbena_cluster_slots_owned") == now("redis_cluster_slots_ok") == 16001
    assert now("redis_cluster_state") == 0
    assert fields["cluster_state"] == "fail"
    assert int(fields["cluster_slots_ok"]) == 16001
    assert now.of("verbena_cluster_members") == {("alive",): 1, ("pfail",): 0, ("fail",): 0}
    assert now.of("verbena_cluster_moves") == {("out",): 0, ("in",): 0}
    assert now.of("verbena_cluster_moves_ended_total") == {("done",): 0, ("rolled_back",): 0}
    assert now("verbena_cluster_lease_remaining_seconds") > 0


def test_a_move_of_slots_is_counted_at_its_source(tmp_path: Path) -> None:
    """Both nodes show it while it lasts, and afterwards the slots that they own."""
    environment = {"VERBENA_CLUSTER_MAP_STORE": f"sqlite://{tmp_path}/map.db"}
    with (
        store_with_page("n1", "--cluster-enabled", environment=environment) as (banner, source),
        store_with_page("n2", "--cluster-enabled", environment=environment) as (other, target),
    ):
        ports = [re.findall(r"redis-cli -p (\d+)", text)[0] for text in (banner, other)]
        with redis.Redis(port=int(ports[0])) as client, redis.Redis(port=int(ports[1])) as second:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            client.set("key", "value")
            id = second.execute_command("CLUSTER MYID").decode()
            until(source, lambda now: now("redis_cluster_known_nodes") == 2)
            client.execute_command("CLUSTER", "MOVE", "0-99", id)
            now = until(source, lambda now: now("verbena_cluster_moves_ended_total", outcome="done"))
            received = until(target, lambda now: now("verbena_cluster_slots_owned"))
    assert now("verbena_cluster_slots_owned") == 16384 - 100
    assert now("verbena_cluster_moves_ended_total", outcome="rolled_back") == 0
    assert now("verbena_cluster_moves", direction="out") in (0, 1)  # the map follows
    assert now.of("verbena_cluster_members")["alive",] == 2
    assert received("verbena_cluster_slots_owned") == 100
    assert received("verbena_cluster_messages_refused_total") == 0
