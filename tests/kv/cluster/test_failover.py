"""Failover: the most advanced replica replaces a dead primary and has every write that WAIT acknowledged."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.etcd import ETCD, etcd
from support.kv import membership
from support.kv.cluster import Cluster, Node, ReplyError, RespConnection, cluster
from support.kv.crash_matrix import Writer
from support.kv.linearizable import Operation, fault

from verbena import transport
from verbena.shards.envelope import Flag, Kind
from verbena.shards.stores import open_store

TIMEOUT = ("--cluster-node-timeout-ms", "6000")


@contextmanager
def replicated(folder: Path, count: int, *, store: str = "") -> Iterator[Cluster]:
    """The first node owns all slots; the others copy it and are in sync."""
    with cluster(folder, count, store=store, assign=False, options=TIMEOUT) as made:
        assert made[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
        for node in made.nodes[1:]:
            made.until(lambda node=node: made[0].id.encode() in node.raw("CLUSTER", "NODES"))
            assert node.raw("CLUSTER", "REPLICATE", made[0].id) == b"OK"
        with RespConnection("127.0.0.1", made[0].port) as wire:
            made.until(
                lambda: wire.run("SET", "first", "1") and wire.run("WAIT", count - 1, 1000) == count - 1
            )
        yield made


def owner(made: Cluster, asked: int) -> str:
    rows = made[asked].raw("CLUSTER", "SLOTS")
    return str(rows[0][2][2].decode()) if len(rows) == 1 else ""


@pytest.mark.skipif(ETCD is None, reason="etcd is not installed (apt-get install etcd-server)")
@pytest.mark.timeout(120)
def test_a_dead_primary_is_replaced_and_nothing_acknowledged_is_gone(tmp_path: Path) -> None:
    with etcd(tmp_path) as address, replicated(tmp_path, 3, store=f"etcd://{address}") as made:
        with RespConnection("127.0.0.1", made[0].port) as wire:
            for number in range(200):
                wire.run("SET", f"key:{number}", number)
                wire.run("RPUSH", f"list:{number}", number, "x")
            assert wire.run("WAIT", 2, 60_000) == 2
        with RespConnection("127.0.0.1", made[1].port) as wire:
            with pytest.raises(ReplyError, match="MOVED"):
                wire.run("GET", "key:1")
            wire.run("READONLY")
            assert wire.run("GET", "key:1") == b"1"
            with pytest.raises(ReplyError, match="MOVED"):
                wire.run("SET", "key:1", "2")
        made[0].kill()
        made.until(lambda: owner(made, 1) in (made[1].id, made[2].id) and owner(made, 1) == owner(made, 2))
        new = next(node for node in made.nodes[1:] if node.id == owner(made, 1))
        with RespConnection("127.0.0.1", new.port) as wire:
            made.until(lambda: writes(wire))
            for number in range(200):
                assert wire.run("GET", f"key:{number}") == b"%d" % number
                assert wire.run("LRANGE", f"list:{number}", 0, -1) == [b"%d" % number, b"x"]
            wire.run("SET", "after", "1")
        made[0].start().ready()
        made.until(lambda: has(made[0].port, "after", b"1"))
        with pytest.raises(ReplyError, match="MOVED"):
            made[0].raw("SET", "after", "2")


def writes(wire: RespConnection) -> bool:
    try:
        return bool(wire.run("SET", "probe", "1") == b"OK")
    except ReplyError:
        return False


def has(port: int, key: str, value: bytes) -> bool:
    with RespConnection("127.0.0.1", port) as wire:
        try:
            wire.run("READONLY")
            return bool(wire.run("GET", key) == value)
        except ReplyError:
            return False


@pytest.mark.timeout(120)
def test_a_planned_failover_under_load_has_a_history_without_a_gap(tmp_path: Path) -> None:
    """CLUSTER FAILOVER: the primary pauses writes until the replica has all of them; each key is
    linearizable."""
    with replicated(tmp_path, 2) as made:
        writer = Writer(made, 1, [b"w:%d" % number for number in range(20)])
        writer.start()
        try:
            made.until(lambda: writer.writes > 50)
            assert made[1].raw("CLUSTER", "FAILOVER") == b"OK"
            made.until(lambda: owner(made, 0) == made[1].id)
            before = writer.writes
            made.until(lambda: writer.writes > before + 50)
        finally:
            writer.stop()
        with RespConnection("127.0.0.1", made[1].port) as wire:
            for key, history in writer.history.items():
                last = Operation("read", wire.run("GET", key), 1e12, 1e12 + 1)
                assert fault([*history, last]) == "", key


@pytest.mark.timeout(120)
def test_without_the_primarys_help_its_lease_must_have_ended(tmp_path: Path) -> None:
    """FORCE and TAKEOVER are refused while the primary may be writing, and a refusal changes nothing."""
    with replicated(tmp_path, 2) as made:
        for how in ("FORCE", "TAKEOVER"):
            assert f"{made[0].id} holds a lease" in refusal(made[1], "CLUSTER", "FAILOVER", how)
            assert "to a replica" in refusal(made[0], "CLUSTER", "FAILOVER", how)
        assert refusal(made[1], "CLUSTER", "FAILOVER", "SOMEHOW") == "ERR syntax error"
        assert made[0].raw("SET", "still", "here") == b"OK"
        assert owner(made, 1) == made[0].id
        assert made[0].process is not None
        made[0].process.send_signal(signal.SIGSTOP)
        made.until(lambda: taken(made[1]))
        made[0].process.send_signal(signal.SIGCONT)
        assert owner(made, 1) == made[1].id
        made.until(lambda: owner(made, 0) == made[1].id)
        with pytest.raises(ReplyError, match=r"MOVED|CLUSTERDOWN"):
            made[0].raw("SET", "still", "there")


def taken(node: Node) -> bool:
    """True once the replica leads: through FORCE, or because it replaced the primary by itself before."""
    try:
        node.raw("CLUSTER", "FAILOVER", "FORCE")
    except ReplyError as error:
        return "to a replica" in str(error)
    return True


def refusal(node: Node, *words: object) -> str:
    with pytest.raises(ReplyError) as caught:
        node.raw(*words)
    return str(caught.value)


@pytest.mark.timeout(120)
def test_a_primary_that_gave_way_in_vain_takes_its_place_back(tmp_path: Path) -> None:
    """The requesting replica is never heard from again: commands wait and then continue. The primary has
    changed the map's revision, so that the replica's late change is refused."""
    with replicated(tmp_path, 2) as made, RespConnection("127.0.0.1", made[0].port) as wire:

        async def give_way() -> tuple[dict[str, int], int]:
            request = membership.message(Kind.YIELD, made[1].id, made[0].id)
            with transport.Node() as here:
                session = await transport.connect(f"127.0.0.1:{made[0].sessions}", node=here)
                keys = await membership.keys_of(made.store)
                await membership.prove(session, made[1].id, made[0].id, keys)
                first, again = [await membership.send(session, request) for _ in range(2)]
                assert again.flags & Flag.REFUSED
                assert b"is yielding already" in again.payload
                wire.send("SET", "waits", "1")
                answer = await asyncio.to_thread(wire.receive)
                await session.close()
            assert answer == b"OK"
            store = open_store(made.store)
            held = await store.load()
            await store.close()
            return json.loads(first.payload), held.revision

        told, now = asyncio.run(give_way())
        assert told["revision"] < now
        assert owner(made, 0) == made[0].id
        assert made[1].raw("CLUSTER", "FAILOVER") == b"OK"
        made.until(lambda: owner(made, 0) == made[1].id)
