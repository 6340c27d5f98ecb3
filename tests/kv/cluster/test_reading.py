"""Clients of a cluster's primary and its replica: which reads are allowed, what is refused, and what happens
to waiting clients."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.cluster import LoadBalancingStrategy
from support.kv.cluster import Cluster, ReplyError, RespConnection, cluster

# Long enough that no replica replaces a primary that is stopped for some time.
OPTIONS = (
    *("--cluster-node-timeout-ms", "60000"),
    *("--session-heartbeat-interval-ms", "200", "--session-peer-timeout-ms", "1000"),
)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    """A primary with half of the slots, its replica, and another primary."""
    with cluster(tmp_path, 3, keep=False, assign=False, options=OPTIONS) as found:
        primary, replica, other = found.nodes
        assert primary.raw("CLUSTER", "ADDSLOTSRANGE", 0, 8191) == b"OK"
        assert other.raw("CLUSTER", "ADDSLOTSRANGE", 8192, 16383) == b"OK"
        found.until(lambda: primary.id.encode() in replica.raw("CLUSTER", "NODES"))
        assert replica.raw("CLUSTER", "REPLICATE", primary.id) == b"OK"
        with RespConnection("127.0.0.1", primary.port) as wire:
            found.until(lambda: wire.run("SET", "b", "bee") and wire.run("WAIT", 1, 1000) == 1)
        for node in found.nodes:
            found.until(lambda node=node: b"cluster_slots_assigned:16384" in node.raw("CLUSTER", "INFO"))
        yield found


def refused(wire: RespConnection, *words: str) -> str:
    with pytest.raises(ReplyError) as error:
        wire.run(*words)
    return str(error.value)


def test_readonly_is_for_reads_of_the_primarys_slots_until_readwrite(made: Cluster) -> None:
    primary, replica, other = made.nodes
    here, there = f"MOVED 3300 127.0.0.1:{primary.port}", f"MOVED 15495 127.0.0.1:{other.port}"
    with RespConnection("127.0.0.1", replica.port) as wire:
        assert refused(wire, "GET", "b") == here
        assert wire.run("READONLY") == b"OK"
        assert wire.run("GET", "b") == b"bee"
        assert wire.run("MGET", "b", "{b}2") == [b"bee", None]
        assert wire.run("TYPE", "b") == b"string"  # executed in Python
        for words in (("SET", "b", "x"), ("RPUSH", "{b}l", "x"), ("EXPIRE", "b", "9")):
            assert refused(wire, *words) == here
        assert refused(wire, "GET", "a") == there
        wire.run("MULTI")
        assert wire.run("GET", "b") == b"QUEUED"
        assert wire.run("EXEC") == [b"bee"]
        wire.run("MULTI")
        assert refused(wire, "SET", "b", "x") == here
        assert refused(wire, "EXEC").startswith("EXECABORT ")
        assert wire.run("READWRITE") == b"OK"
        assert refused(wire, "GET", "b") == here
    assert primary.raw("GET", "b") == b"bee"


def test_redis_py_reads_from_replicas(made: Cluster) -> None:
    replica = made[1]
    taking_turns = LoadBalancingStrategy.ROUND_ROBIN
    with made.client(load_balancing_strategy=taking_turns) as client, replica.client() as looking:
        assert [node.port for node in client.get_replicas()] == [replica.port]
        for number in range(100):
            client.set(f"key:{number}", number)
        with RespConnection("127.0.0.1", made[0].port) as wire:
            wire.run("SET", "b", "last")
            assert wire.run("WAIT", 1, 60_000) == 1

        def served() -> int:
            return int(looking.info("commandstats")["cmdstat_get"]["calls"])

        client.get("b")
        client.get("b")
        before = served()
        assert [client.get(f"key:{number}") for number in range(100)] == [b"%d" % n for n in range(100)]
        assert 10 < served() - before < 60  # about half of the slots that it copies
        pipeline = client.pipeline()
        for number in range(100):
            pipeline.get(f"key:{number}")
        assert pipeline.execute() == [b"%d" % number for number in range(100)]


@pytest.mark.timeout(120)
def test_a_replica_whose_primary_is_silent_serves_what_it_has(made: Cluster) -> None:
    """Its link is down, and INFO reports since when; clients without READONLY are redirected. Then it catches
    up."""
    primary, replica, _ = made.nodes
    with RespConnection("127.0.0.1", replica.port) as wire, replica.client() as looking:
        made.until(lambda: looking.info("replication")["master_link_status"] == "up")
        assert primary.process is not None
        primary.process.send_signal(signal.SIGSTOP)
        made.until(lambda: looking.info("replication")["master_link_status"] == "down")
        assert refused(wire, "GET", "b").startswith("MOVED ")
        wire.run("READONLY")
        assert wire.run("GET", "b") == b"bee"
        made.until(lambda: looking.info("replication")["master_link_down_since_seconds"] >= 1)
        primary.process.send_signal(signal.SIGCONT)
        made.until(lambda: looking.info("replication")["master_link_status"] == "up")
        made.until(lambda: primary.raw("SET", "b", "later") == b"OK")
        made.until(lambda: wire.run("GET", "b") == b"later")


def test_a_client_in_wait_is_not_redirected_when_the_map_changes(made: Cluster) -> None:
    """WAIT has no key and therefore no slot. When the primary becomes a replica, the waiting client gets an
    error."""
    primary, replica, other = made.nodes
    with RespConnection("127.0.0.1", primary.port) as wire:
        wire.run("SET", "b", "1")
        wire.send("WAIT", 9, 3000)
        made.until(lambda: b"blocked_clients:1" in primary.raw("INFO", "clients"))
        assert other.raw("CLUSTER", "DELSLOTS", 16383) == b"OK"
        made.until(lambda: b"cluster_slots_assigned:16383" in primary.raw("CLUSTER", "INFO"))
        assert wire.receive() == 1
        wire.send("WAIT", 9, 0)
        made.until(lambda: b"blocked_clients:1" in primary.raw("INFO", "clients"))
        assert replica.raw("CLUSTER", "FAILOVER") == b"OK"
        with pytest.raises(ReplyError, match="UNBLOCKED force unblock"):
            wire.receive()
