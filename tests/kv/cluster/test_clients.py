"""A cluster of three processes with common clients: redirections, redis-py, redis-cli."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import redis
from redis.exceptions import ResponseError
from support.kv.cluster import Cluster, Node, ReplyError, RespConnection, cluster, info
from support.kv.store import Store

from verbena import kv
from verbena.shards.slots import slot_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), 3) as found:
        yield found


def owner(made: Cluster, key: bytes | str) -> int:
    return min(slot_of(key.encode() if isinstance(key, str) else key) // 5461, 2)


def error_of(node: Node, *words: object) -> str:
    with pytest.raises(ReplyError) as caught:
        node.raw(*words)
    return str(caught.value)


def test_redis_py_finds_its_way(made: Cluster) -> None:
    """Native commands, commands in Python and pipelines, on all nodes."""
    client = made.client()
    for number in range(300):
        client.set(f"s{number}", number)
        client.rpush(f"l{number}", number, number)
    assert [client.get(f"s{number}") for number in range(300)] == [b"%d" % number for number in range(300)]
    assert all(client.llen(f"l{number}") == 2 for number in range(300))
    sizes = [node.raw("DBSIZE") for node in made.nodes]
    assert sum(sizes) == 600
    assert min(sizes) > 100
    with client.pipeline() as pipe:
        for number in range(50):
            pipe.incr(f"s{number}")
        assert pipe.execute() == list(range(1, 51))
    assert client.mget("{tag}a", "{tag}b") == [None, None]
    client.close()


def test_a_client_finds_its_way(made: Cluster) -> None:
    """kv.Client, opened at one node: every key, commands in Python, keys of several slots, pipelines."""
    with kv.Client(f"127.0.0.1:{made[0].sessions}", timeout_s=30) as client:
        for number in range(60):
            assert client.set(f"one:{number}", number)
            assert client.execute("RPUSH", f"ones:{number}", number) == 1
        keys = [f"one:{number}" for number in range(60)]
        assert [client.get(key) for key in keys] == [b"%d" % number for number in range(60)]
        assert client.mget([*keys, "nothing"]) == [*(b"%d" % number for number in range(60)), None]
        client.mset(dict.fromkeys(keys, 1))
        assert [client.incr(key) for key in keys] == [2] * 60
        with client.pipeline() as pipe:
            for key in keys:
                pipe.incr(key)
            assert pipe.execute() == [3] * 60
        with client.pipeline(transaction=True) as pipe:
            assert pipe.set("{one}a", 1).incr("{one}a").execute() == [True, 2]
        assert min(node.raw("DBSIZE") for node in made.nodes) > 10
        assert client.delete(*keys, *(f"ones:{number}" for number in range(60)), "{one}a") == 121
        stats = client.stats()
        assert 0 < stats.redirects < 10  # it has learned the map
        with pytest.raises(kv.CommandError, match="CROSSSLOT"):
            client.execute("SUNION", "a", "b")


async def test_an_asyncio_client_finds_its_way(made: Cluster) -> None:
    async with kv.AsyncClient(f"127.0.0.1:{made[1].sessions}", timeout_s=30) as client:
        keys = [f"two:{number}" for number in range(60)]
        await client.mset(dict.fromkeys(keys, 1))
        assert await client.mget(keys) == [b"1"] * 60
        assert await asyncio.gather(*map(client.incr, keys)) == [2] * 60
        async with client.pipeline() as pipe:
            for key in keys:
                pipe.get(key)
            assert await pipe.execute() == [b"2"] * 60
        assert await client.delete(*keys) == 60
        assert client.stats().redirects == 0  # it has loaded the map when a node refused the keys of MSET


def test_a_client_follows_a_slot_that_moves(made: Cluster) -> None:
    """ASK while the slot moves, then MOVED."""
    slot = slot_of(b"way")
    source = made[min(slot // 5461, 2)]
    target = next(node for node in made.nodes if node is not source)
    with kv.Client(f"127.0.0.1:{source.sessions}", timeout_s=30) as client:
        assert target.raw("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id) == b"OK"
        assert source.raw("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id) == b"OK"
        assert client.set("{way}new", 1)
        assert client.get("{way}new") == b"1"
        assert client.stats().redirects >= 2
        assert target.raw("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
        assert target.raw("CLUSTER", "SETSLOT", slot, "NODE", target.id) == b"OK"
        made.until(lambda: target.id in _owner_of(source, slot))
        assert client.get("{way}new") == b"1"
        assert client.delete("{way}new") == 1
    assert target.raw("CLUSTER", "SETSLOT", slot, "NODE", source.id) == b"OK"
    for node in made.nodes:
        made.until(lambda node=node: source.id in _owner_of(node, slot))


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
def test_redis_cli_follows(made: Cluster) -> None:
    port = str(made[0].port)
    for words, says in (("set", "cli", "1"), "OK"), (("lpush", "cli-list", "x"), "1"), (("get", "cli"), "1"):
        done = subprocess.run(
            ["redis-cli", "-c", "-p", port, *words], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == says
    done = subprocess.run(
        ["redis-cli", "--cluster", "check", f"127.0.0.1:{port}"], capture_output=True, text=True, check=False
    )
    assert "[OK] All 16384 slots covered." in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [("GET", "foo"), ("SET", "foo", "1"), ("LPUSH", "foo", "1"), ("ZADD", "foo", "1", "m"), ("WATCH", "foo")],
)
def test_a_key_of_another_node_is_moved(made: Cluster, words: tuple[str, ...]) -> None:
    """Native commands and commands in Python give the same redirection."""
    right = made[owner(made, "foo")]
    for node in made.nodes:
        if node is not right:
            assert error_of(node, *words) == f"MOVED 12182 127.0.0.1:{right.port}"
    right.raw("DEL", "foo")
    right.raw(*words)
    right.raw("DEL", "foo")


def test_keys_of_two_slots_are_refused(made: Cluster) -> None:
    for words in (("MGET", "a", "b"), ("DEL", "a", "b"), ("SUNION", "a", "b"), ("MSET", "a", "1", "b", "1")):
        assert error_of(made[0], *words).startswith("CROSSSLOT")
    assert error_of(made[0], "SELECT", "1") == "ERR SELECT is not allowed in cluster mode"
    node = made[min(slot_of(b"t") // 5461, 2)]
    assert node.raw("MSET", "{t}a", "1", "{t}b", "2") == b"OK"
    assert node.raw("MGET", "{t}a", "{t}b") == [b"1", b"2"]
    # One slot, but too few arguments: the command itself reports the error.
    assert "wrong number of arguments" in error_of(node, "MGET")


def test_a_transaction_is_of_one_slot(made: Cluster) -> None:
    here = made[min(slot_of(b"t") // 5461, 2)]
    with here.client() as client, client.pipeline() as pipe:
        pipe.set("{t}x", 1)
        pipe.rpush("{t}y", 1)
        assert pipe.execute() == [True, 1]
    elsewhere = next(node for node in made.nodes if node is not here)
    with RespConnection("127.0.0.1", elsewhere.port) as client:
        client.run("MULTI")
        with pytest.raises(ReplyError, match="MOVED"):
            client.run("SET", "{t}x", 1)
        with pytest.raises(ReplyError, match="EXECABORT"):
            client.run("EXEC")
    here.raw("DEL", "{t}x", "{t}y")


def test_cluster_subcommands_describe_the_cluster(made: Cluster) -> None:
    ids = [node.raw("CLUSTER", "MYID").decode() for node in made.nodes]
    assert [node.id for node in made.nodes] == ids
    facts = dict(line.split(b":") for line in info(made[1]).split(b"\r\n") if line)
    assert (facts[b"cluster_state"], facts[b"cluster_slots_assigned"]) == (b"ok", b"16384")
    assert (facts[b"cluster_known_nodes"], facts[b"cluster_size"]) == (b"3", b"3")
    lines = made[1].raw("CLUSTER", "NODES").decode().splitlines()
    assert [line.split()[0] for line in lines] == sorted(ids)
    assert [line.split()[0] for line in lines if "myself" in line] == [ids[1]]
    ranges = {(first, last, node[2].decode()) for first, last, node in made[2].raw("CLUSTER", "SLOTS")}
    assert ranges == {(0, 5460, ids[0]), (5461, 10921, ids[1]), (10922, 16383, ids[2])}
    assert len(made[0].raw("CLUSTER", "SHARDS")) == 3
    assert made[0].raw("CLUSTER", "KEYSLOT", "{user1000}.x") == slot_of(b"user1000")
    assert b"cluster_enabled:1" in made[0].raw("INFO", "cluster")
    made.until(lambda: len(made[0].raw("CLUSTER", "LINKS")) == 2)
    assert made[0].raw("CLUSTER", "MYSHARDID").decode() == ids[0]
    assert made[0].raw("CLUSTER", "HELP")


def test_keys_of_a_slot_can_be_counted(made: Cluster) -> None:
    node, slot = made[min(slot_of(b"count") // 5461, 2)], slot_of(b"count")
    for number in range(5):
        node.raw("SET", f"{{count}}{number}", "1")
    assert node.raw("CLUSTER", "COUNTKEYSINSLOT", slot) == 5
    assert len(node.raw("CLUSTER", "GETKEYSINSLOT", slot, 3)) == 3
    assert set(node.raw("CLUSTER", "GETKEYSINSLOT", slot, 9)) == {
        b"{count}%d" % number for number in range(5)
    }
    assert error_of(node, "CLUSTER", "COUNTKEYSINSLOT", 16384) == "ERR Invalid slot"


def test_a_slot_moved_by_hand_asks(made: Cluster) -> None:
    """SETSLOT MIGRATING and IMPORTING: missing keys are redirected with ASK, and the target serves them only
    after ASKING."""
    slot = slot_of(b"hand")
    source = made[min(slot // 5461, 2)]
    target = next(node for node in made.nodes if node is not source)
    source.raw("SET", "{hand}here", "1")
    assert target.raw("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id) == b"OK"
    assert source.raw("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id) == b"OK"
    assert f"[{slot}->-{target.id}]".encode() in source.raw("CLUSTER", "NODES")
    assert f"[{slot}-<-{source.id}]".encode() in target.raw("CLUSTER", "NODES")
    assert source.raw("GET", "{hand}here") == b"1"
    assert error_of(source, "GET", "{hand}gone") == f"ASK {slot} 127.0.0.1:{target.port}"
    assert error_of(source, "HGET", "{hand}gone", "f") == f"ASK {slot} 127.0.0.1:{target.port}"
    assert error_of(source, "MGET", "{hand}here", "{hand}gone").startswith("TRYAGAIN")
    assert error_of(target, "SET", "{hand}gone", "2").startswith("MOVED")
    with RespConnection("127.0.0.1", target.port) as client:
        client.run("ASKING")
        assert client.run("SET", "{hand}gone", "2") == b"OK"
        with pytest.raises(ReplyError, match="MOVED"):
            client.run("GET", "{hand}gone")
        client.run("ASKING")
        assert client.run("LPUSH", "{hand}list", "x") == 1
    assert made.client().get("{hand}gone") == b"2"  # redis-py follows the redirection
    assert error_of(source, "CLUSTER", "SETSLOT", slot, "NODE", target.id).startswith(
        "ERR Can't assign hashslot"
    )
    source.raw("DEL", "{hand}here")
    assert target.raw("CLUSTER", "SETSLOT", slot, "NODE", target.id) == b"OK"
    assert target.raw("GET", "{hand}gone") == b"2"
    for node in made.nodes:
        made.until(lambda node=node: target.id in _owner_of(node, slot))
    # Restore the slot for the following tests.
    target.raw("DEL", "{hand}gone", "{hand}list")
    assert target.raw("CLUSTER", "SETSLOT", slot, "NODE", source.id) == b"OK"
    for node in made.nodes:
        made.until(lambda node=node: source.id in _owner_of(node, slot))
        assert b"[" not in node.raw("CLUSTER", "NODES")
    assert source.raw("GET", "{hand}gone") is None  # no ASK redirection any longer


def test_a_slot_that_is_open_stays_with_its_node_when_others_join(made: Cluster) -> None:
    """The ASK redirection stays the same when nodes join, whatever the order of their ids."""
    slot = slot_of(b"joined")
    source = made[min(slot // 5461, 2)]
    target = next(node for node in made.nodes if node is not source)
    assert source.raw("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id) == b"OK"
    joined = [Node(made[0].folder, made.store, f"joined{number}", keep=False) for number in range(2)]
    # One id sorts before all others, one after.
    for node, digit in zip(joined, "0f", strict=True):
        (place := node.folder / node.name / "cluster").mkdir(parents=True)
        (place / "node-id").write_text(digit * 40)
    try:
        for node in joined:
            node.start().ready()
            made.until(lambda node=node: node.id.encode() in source.raw("CLUSTER", "NODES"))
            assert error_of(source, "GET", "{joined}gone") == f"ASK {slot} 127.0.0.1:{target.port}"
    finally:
        for node in joined:
            node.kill()
    for node in joined:
        assert source.raw("CLUSTER", "FORGET", node.id) == b"OK"
    assert error_of(source, "GET", "{joined}gone") == f"ASK {slot} 127.0.0.1:{target.port}"
    assert source.raw("CLUSTER", "SETSLOT", slot, "STABLE") == b"OK"
    assert source.raw("GET", "{joined}gone") is None


def _owner_of(node: Node, slot: int) -> list[str]:
    rows = node.raw("CLUSTER", "SLOTS")
    return [row[2][2].decode() for row in rows if row[0] <= slot <= row[1]]


def test_a_client_blocked_on_a_key_is_redirected_when_its_slot_moves(made: Cluster) -> None:
    slot = slot_of(b"wait")
    source = made[min(slot // 5461, 2)]
    target = next(node for node in made.nodes if node is not source)
    waiting = RespConnection("127.0.0.1", source.port)
    waiting.send("BLPOP", "{wait}list", "0")
    made.until(lambda: b"blocked_clients:1" in source.raw("INFO", "clients"))
    assert source.raw("CLUSTER", "SETSLOT", slot, "NODE", target.id) == b"OK"
    with pytest.raises(ReplyError, match=f"MOVED {slot} 127.0.0.1:{target.port}"):
        waiting.receive()
    waiting.close()
    assert target.raw("CLUSTER", "SETSLOT", slot, "NODE", source.id) == b"OK"
    for node in made.nodes:
        made.until(lambda node=node: source.id in _owner_of(node, slot))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ADDSLOTS", "1"), "Slot 1 is already busy"),
        (("ADDSLOTS", "x"), "Invalid or out of range slot"),
        (("ADDSLOTS", "1", "1"), "specified multiple times"),
        (("DELSLOTS", "16000"), "does not own slot 16000"),
        (("FORGET", "0" * 40), "Unknown node"),
        (("SETSLOT", "1", "NODE", "0" * 40), "Unknown node"),
        (("SETSLOT", "1", "SOMEHOW"), "Invalid CLUSTER SETSLOT"),
        (("MEET", "127.0.0.1", "1"), "no member is at"),
        (("REPLICAS", "0" * 40), "Unknown node"),
        (("NOSUCH",), "unknown subcommand"),
        (("RESET", "SOFTLY"), "syntax error"),
    ],
)
def test_invalid_subcommands_change_nothing(made: Cluster, words: tuple[str, ...], says: str) -> None:
    epoch = [line for line in info(made[0]).split(b"\r\n") if b"current_epoch" in line]
    assert says in error_of(made[0], "CLUSTER", *words)
    assert [line for line in info(made[0]).split(b"\r\n") if b"current_epoch" in line] == epoch


def test_replicaof_is_refused_in_a_cluster(made: Cluster) -> None:
    for words in (("REPLICAOF", "127.0.0.1", made[1].port), ("SLAVEOF", "NO", "ONE")):
        assert error_of(made[0], *words) == "ERR REPLICAOF not allowed in cluster mode."
    assert made[0].raw("ROLE")[0] == b"master"


def test_meet_finds_members(made: Cluster) -> None:
    assert made[0].raw("CLUSTER", "MEET", "127.0.0.1", made[1].port) == b"OK"


def test_a_node_that_restarts_is_the_same_node(made: Cluster) -> None:
    """After a restart a node has the same id, slots and keys."""
    node = made[owner(made, "keep")]
    node.raw("SET", "keep", "me")
    node.kill()
    node.start().ready()
    assert node.raw("CLUSTER", "MYID").decode() == node.id
    assert node.raw("GET", "keep") == b"me"


def test_a_node_that_stops_is_marked_within_the_timeout(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Gossip: the other nodes mark it as failed, and remove the mark when it answers again."""
    folder = tmp_path_factory.mktemp("stops")
    with cluster(folder, 3, keep=False, options=("--cluster-node-timeout-ms", "1500")) as made:
        made[2].process.send_signal(19)  # type: ignore[union-attr]
        made.until(lambda: b"cluster_state:fail" in info(made[0]), timeout_s=30)
        line = next(
            line for line in made[0].raw("CLUSTER", "NODES").splitlines() if made[2].id.encode() in line
        )
        assert b"master,fail" in line
        made.until(lambda: made[0].raw("CLUSTER", "COUNT-FAILURE-REPORTS", made[2].id) == 1)
        assert made[0].raw("CLUSTER", "COUNT-FAILURE-REPORTS", made[1].id) == 0
        made[2].process.send_signal(18)  # type: ignore[union-attr]
        made.until(lambda: b"cluster_state:ok" in info(made[0]), timeout_s=30)


def test_without_a_cluster_there_is_none(store_port: int) -> None:
    with redis.Redis(port=store_port) as client:
        for words in ("CLUSTER INFO", "ASKING"):
            with pytest.raises(ResponseError, match="cluster support disabled"):
                client.execute_command(words)
        client.mset({"a": 1, "b": 2})


@pytest.fixture
def store_port(store: Store) -> int:
    return store.port
