"""The metrics of a store at /metrics: complete and correct, also if the engine does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.kv.scraped import scrape, until
from support.kv.store_page import store_with_page
from support.ports import free_port

from verbena import transport
from verbena.kv import Client, rdma_pool
from verbena.kv.observe import table
from verbena.kv.observe.store_metrics import StoreMetrics
from verbena.kv.server.server import Server
from verbena.transport.observe.metrics import table as node_table


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("store")
    flags = ("--kv-persistence-dir", str(folder / "data"), "--kv-unix-socket", str(folder / "socket"))
    rdma = f"iwarp://127.0.0.1:{free_port()}"
    with store_with_page("n1", *flags, "--kv-rdma-listen", rdma) as (banner, page):
        (port,) = re.findall(r"redis-cli -p (\d+)", banner)
        (sessions,) = re.findall(r"sessions\s+(\S+) on", banner)
        yield {
            "page": page,
            "port": int(port),
            "sessions": sessions,
            "unix": str(folder / "socket"),
            "rdma": rdma,
        }


def test_the_page_has_every_metric_with_its_type_and_labels(store: dict[str, Any]) -> None:
    now = scrape(store["page"])
    metrics = (*node_table.METRICS, *table.METRICS)
    kinds = {metric.name.removesuffix("_total"): metric.kind for metric in metrics}
    assert {name: family.type for name, family in now.families.items()} == kinds
    for metric in metrics:
        family = now.families[metric.name.removesuffix("_total")]
        assert family.documentation == metric.help
        assert all(set(one.labels) - {"le"} == set(metric.labels) for one in family.samples)


def test_the_values_are_what_clients_did(store: dict[str, Any]) -> None:
    """Keys, hits, commands with their times, errors and the slow log."""
    with redis.Redis(port=store["port"]) as client:
        client.flushall()
        client.config_resetstat()
        client.slowlog_reset()
        client.config_set("slowlog-log-slower-than", 0)
        client.config_set("maxmemory", 1 << 30)
        for number in range(10):
            client.set(f"key{number}", "value", ex=1000 if number < 3 else None)
        client.get("key1")
        client.get("nothing")
        read = scrape(store["page"])
        client.hset("hash", "field", "value")
        with pytest.raises(redis.ResponseError):
            client.execute_command("INCR", "key1")
        client.config_set("slowlog-log-slower-than", 10_000)
        now = until(store["page"], lambda now: now("redis_slowlog_length"))
    assert (now("redis_up"), now("redis_memory_max_bytes")) == (1, 1 << 30)
    assert (now("redis_db_keys", db="db0"), now("redis_db_keys_expiring", db="db0")) == (11, 3)
    assert (read("redis_keyspace_hits_total"), read("redis_keyspace_misses_total")) == (1, 1)
    assert now("redis_commands_total", cmd="set") == 10
    assert now("redis_commands_total", cmd="hset") == 1
    assert now("redis_commands_failed_calls_total", cmd="incr") == 1
    assert now("redis_errors_total", err="ERR") == 1
    assert now("verbena_store_command_seconds_count", cmd="set") == 10
    assert now("verbena_store_command_seconds_bucket", cmd="set", le="+Inf") == 10
    assert 0 < now("verbena_store_command_seconds_sum", cmd="set") < 1
    assert 0 < now("redis_memory_used_bytes") < now("redis_memory_used_rss_bytes")
    assert now("redis_aof_enabled") == now("redis_aof_last_write_status") == 1
    assert now("redis_instance_info", **now.families["redis_instance_info"].samples[0].labels) == 1


def test_a_histogram_has_each_call_below_its_time(store: dict[str, Any]) -> None:
    """The counts never fall from bound to bound, and the last has all calls."""
    with redis.Redis(port=store["port"]) as client:
        for _ in range(100):
            client.ping()
    now = scrape(store["page"])
    counts = {
        float(bound): count
        for (command, bound), count in now.of("verbena_store_command_seconds_bucket").items()
        if command == "ping"
    }
    ordered = [counts[bound] for bound in sorted(counts)]
    assert ordered == sorted(ordered)
    assert ordered[-1] == now("redis_commands_total", cmd="ping") >= 100
    assert min(counts) == pytest.approx(256e-9)


def test_clients_are_counted_by_frontend(store: dict[str, Any]) -> None:
    """Also their memory leases. A client that has left is not counted."""
    before = scrape(store["page"])
    assert before.of("verbena_store_clients")["tcp",] == 0
    with (
        redis.Redis(port=store["port"]) as tcp,
        redis.Redis(unix_socket_path=store["unix"]) as unix,
        contextlib.closing(rdma_pool(store["rdma"], library="redis")) as pool,
        Client(store["sessions"], wire="shm") as session,
    ):
        redis.Redis(connection_pool=pool).ping()
        tcp.ping()
        unix.ping()
        session.set("key", "value")
        assert session.get("key") == b"value"
        now = scrape(store["page"])
        clients = now.of("verbena_store_clients")
        assert clients.pop(("session",)) >= 1
        assert clients == {("tcp",): 1, ("unix",): 1, ("tls",): 0, ("rdma",): 1, ("internal",): 0}
        assert now("redis_connected_clients") == sum(now.of("verbena_store_clients").values())
        assert now("verbena_store_memory_leases") == 1
        assert now("verbena_store_session_requests_total") >= 1
    ended = until(store["page"], lambda now: now("redis_connected_clients") == 0)
    assert ended("verbena_store_memory_leases") == 0
    assert ended("verbena_store_memory_leases_granted_total") >= 1
    assert set(ended.of("verbena_store_clients").values()) == {0}


async def test_an_engine_that_does_not_answer_is_down() -> None:
    """The page comes all the same, with the metrics of the node and the process; then it is complete
    again."""
    node, server, busy = await asyncio.to_thread(transport.Node), Server(), threading.Event()
    node.metric_sources["store"] = StoreMetrics(server)
    page = (await asyncio.to_thread(node.serve_metrics, "127.0.0.1:0")).address
    try:
        stopped = await asyncio.to_thread(scrape, page)
        server.start()
        begun = threading.Event()

        def wait() -> None:
            begun.set()
            busy.wait(30)

        server.engine.post(wait)
        assert await asyncio.to_thread(begun.wait, 10)
        for now in (stopped, await asyncio.to_thread(scrape, page)):
            assert now("redis_up") == 0
            assert "redis_memory_used_bytes" not in now.families
            assert "verbena_uptime_seconds" in now.families
        busy.set()
        answered = await asyncio.to_thread(scrape, page)
        assert answered("redis_up") == 1
        assert answered("redis_db_keys", db="db0") == 0
    finally:
        busy.set()
        await asyncio.to_thread(server.close)
        await asyncio.to_thread(node.close)
