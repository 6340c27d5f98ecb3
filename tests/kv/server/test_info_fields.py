"""The fields of INFO are correct: each event changes its field by the exact amount. Events that must happen
once use plain RESP, because redis-py sends additional commands and retries."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kv.redis_peer import MISSING, SERVER, Peer, redis_server
from support.kv.kv_store import Store, running
from support.kv.resp import Connection

Event = Callable[[redis.Redis, Store], object]


def _quietly(call: Callable[[], object]) -> None:
    with pytest.raises(redis.RedisError):
        call()


def _connect(client: redis.Redis, store: Store) -> None:
    with store.client() as other:
        other.ping()


def _expire(client: redis.Redis, store: Store) -> None:
    client.set("short", "s", px=1)
    while client.exists("short"):
        pass


def _refuse(client: redis.Redis, store: Store) -> None:
    most = client.config_get("maxclients")["maxclients"]
    client.config_set("maxclients", 1)  # the connection of `client`
    try:
        with Connection(store.port) as other:
            assert "max number of clients" in other.receive()
    finally:
        client.config_set("maxclients", most)


def _evict(client: redis.Redis, store: Store) -> None:
    client.set("large", "l" * 100_000)
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", client.info("memory")["used_memory"] - 1000)
    try:
        client.set("small", "s")
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


def _user(client: redis.Redis, store: Store, *words: str) -> None:
    client.execute_command("ACL", "SETUSER", "guest", "on", "nopass", "+get", "+publish", "~own:*", "&own")
    with Connection(store.port) as guest:
        assert guest.run(b"AUTH", b"guest", b"x") == "OK"
        assert guest.run(*(word.encode() for word in words)).startswith("NOPERM")


def _wrong_password(client: redis.Redis, store: Store) -> None:
    with Connection(store.port) as other:
        assert other.run(b"AUTH", b"nobody", b"x").startswith("WRONGPASS")


# Field, event, change of the field.
STATS: list[tuple[str, Event, int]] = [
    ("total_connections_received", _connect, 1),
    ("rejected_connections", _refuse, 1),
    ("expired_keys", _expire, 1),
    ("evicted_keys", _evict, 1),
    (
        "keyspace_hits",
        lambda client, store: (client.set("a", "b"), client.get("a"), client.mget("a", "a")),
        3,
    ),
    ("keyspace_hits", lambda client, store: (client.hset("h", "a", "b"), client.hget("h", "a")), 1),
    ("keyspace_misses", lambda client, store: (client.get("none"), client.mget("none", "none")), 3),
    ("keyspace_misses", lambda client, store: client.hget("none", "a"), 1),
    ("total_error_replies", lambda client, store: _quietly(lambda: client.execute_command("NOTHING")), 1),
    (
        "total_error_replies",
        lambda client, store: (client.set("a", "b"), _quietly(lambda: client.incr("a"))),
        1,
    ),
    ("acl_access_denied_auth", _wrong_password, 1),
    ("acl_access_denied_cmd", lambda client, store: _user(client, store, "SET", "own:a", "b"), 1),
    ("acl_access_denied_key", lambda client, store: _user(client, store, "GET", "other"), 1),
    ("acl_access_denied_channel", lambda client, store: _user(client, store, "PUBLISH", "other", "m"), 1),
    ("total_forks", lambda client, store: None, 0),
    ("latest_fork_usec", lambda client, store: None, 0),
]


@pytest.mark.parametrize(
    ("field", "event", "amount"), STATS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_stats_move_by_what_happened(
    client: redis.Redis, store: Store, field: str, event: Event, amount: int
):
    before = client.info("stats")[field]
    event(client, store)
    assert client.info("stats")[field] - before == amount


# Section, field, commands of a client that stays connected, change of the field; then it returns to before.
HELD = [
    ("clients", "connected_clients", ("PING",), 1),
    ("clients", "watching_clients", ("WATCH", "k"), 1),
    ("clients", "pubsub_clients", ("SUBSCRIBE", "c"), 1),
    ("clients", "blocked_clients", ("BLPOP", "none", "0"), 1),
    ("clients", "clients_in_timeout_table", ("BLPOP", "none", "0"), 0),
    ("clients", "clients_in_timeout_table", ("BLPOP", "none", "1000"), 1),
    ("clients", "total_blocking_keys", ("BLPOP", "none", "nil", "0"), 2),
    ("stats", "pubsub_channels", ("SUBSCRIBE", "a", "b"), 2),
    ("stats", "pubsub_patterns", ("PSUBSCRIBE", "a*"), 1),
    ("stats", "pubsubshard_channels", ("SSUBSCRIBE", "a"), 1),
]


@pytest.mark.parametrize(("section", "field", "words", "amount"), HELD)
def test_what_a_client_holds_is_counted_while_it_is_there(
    client: redis.Redis, store: Store, section: str, field: str, words: tuple[str, ...], amount: int
):
    before = client.info(section)[field]
    connected = client.info("clients")["connected_clients"]
    with socket.create_connection(("127.0.0.1", store.port)) as other:
        said = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        other.sendall(said.encode())
        if words[0] == "BLPOP":
            while not client.info("clients")["blocked_clients"]:
                pass
        else:
            other.recv(1)
        assert client.info(section)[field] - before == amount
    while client.info("clients")["connected_clients"] != connected:
        pass
    assert client.info(section)[field] == before


def test_bytes_reads_and_writes_are_counted_exactly(store: Store):
    """Measured by a single client that knows what it sent and received. A reply counts once it is written."""
    info, ping = b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n", b"*1\r\n$4\r\nPING\r\n"
    with socket.create_connection(("127.0.0.1", store.port)) as raw, raw.makefile("rb") as replies:

        def stats() -> tuple[dict[str, str], int]:
            raw.sendall(info)
            head = replies.readline()
            body = replies.read(int(head[1:]) + 2)
            rows = dict(line.split(":", 1) for line in body.decode().splitlines() if ":" in line)
            return rows, len(head) + len(body)

        before, size = stats()
        raw.sendall(ping)
        assert replies.readline() == b"+PONG\r\n"
        after, _ = stats()
    moved = {name: int(after[name]) - int(before[name]) for name in after if name.startswith("total_")}
    assert moved["total_net_input_bytes"] == len(ping) + len(info)
    assert moved["total_net_output_bytes"] == size + len(b"+PONG\r\n")
    assert moved["total_reads_processed"] == 2
    assert moved["total_writes_processed"] == 2
    assert moved["total_commands_processed"] == 2


def test_the_longest_buffers_are_remembered_for_a_while(client: redis.Redis, store: Store):
    """The input and output buffers of a client count even after it has disconnected."""
    client.set("long", "x" * 300_000)
    size = len("$300000\r\n\r\n") + 300_000
    part = b"*2\r\n$3\r\nGET\r\n$600000\r\n" + b"y" * 500_000
    with Connection(store.port) as other:
        other.socket.sendall(part)
        while client.info("clients")["client_recent_max_input_buffer"] < len(part):
            pass
    with Connection(store.port) as other:
        assert len(other.run(b"GET", b"long")) == 300_000
    clients = client.info("clients")
    assert clients["client_recent_max_input_buffer"] == len(part)
    assert clients["client_recent_max_output_buffer"] == size


@pytest.mark.parametrize(
    ("good", "failing", "rejected"),
    [
        (("SET", "s", "x"), ("INCR", "s"), ("SET", "s")),
        (("HSET", "h", "f", "x"), ("HINCRBY", "h", "f", "1"), ("HSET", "h")),
    ],
    ids=["native", "python"],
)
def test_commands_are_counted_by_how_they_ended(
    client: redis.Redis, good: tuple[str, ...], failing: tuple[str, ...], rejected: tuple[str, ...]
):
    client.config_resetstat()
    client.execute_command(*good)
    client.execute_command(*good)
    _quietly(lambda: client.execute_command(*failing))
    _quietly(lambda: client.execute_command(*rejected))
    rows = client.info("commandstats")
    done, failed = rows[f"cmdstat_{good[0].lower()}"], rows[f"cmdstat_{failing[0].lower()}"]
    assert (done["calls"], done["failed_calls"], done["rejected_calls"]) == (2, 0, 1)
    assert (failed["calls"], failed["failed_calls"], failed["rejected_calls"]) == (1, 1, 0)
    assert client.info("errorstats")["errorstat_ERR"]["count"] == 2
    assert f"latency_percentiles_usec_{good[0].lower()}" in client.info("latencystats")


def test_keys_and_their_expiry_are_counted(client: redis.Redis):
    changes = client.info("persistence")["rdb_changes_since_last_save"]
    client.mset({"a": "1", "b": "2"})
    client.expire("b", 1000)
    assert client.info("keyspace")["db0"] == {"keys": 2, "expires": 1}
    assert client.info("persistence")["rdb_changes_since_last_save"] == changes + 3


def test_the_loops_processor_time_is_a_part_of_the_process(client: redis.Redis):
    cpu = client.info("cpu")
    for kind in ("user", "sys"):
        assert 0 <= cpu[f"used_cpu_{kind}_main_thread"] <= cpu[f"used_cpu_{kind}"]


def _names(info: bytes) -> set[str]:
    """Names of fields, without those that contain a variable name."""
    rows = [line.split(":")[0] for line in info.decode().splitlines() if ":" in line]
    return {row for row in rows if not re.match("cmdstat_|errorstat_|latency_percentiles_|db[0-9]", row)}


@pytest.mark.skipif(SERVER is None, reason=MISSING)
def test_what_redis_server_has_and_the_store_has_not_is_on_the_page(tmp_path: Path):
    """docs/reference/info.md lists exactly these fields, each with the reason of its absence."""
    page = (Path(__file__).parents[3] / "docs/reference/info.md").read_text()
    absent = re.split("^## ", page, flags=re.M)[1]
    listed = {
        name for row in re.findall(r"^\|([^|]+)\|", absent, re.M) for name in re.findall("`(.+?)`", row)
    }
    with redis_server(tmp_path) as path, contextlib.closing(Peer(path, 2)) as peer:
        if not peer.run("INFO", "server")[1].split(b"redis_version:")[1].startswith(b"7.0."):
            pytest.skip("the page is about redis-server 7.0")
        theirs = _names(peer.run("INFO", "everything")[1])
    with (
        running("--kv-sessions", "--kv-persistence-dir", str(tmp_path / "store")) as store,
        Connection(store.port) as ours,
    ):
        own = _names(ours.run(b"INFO", b"everything"))
    assert theirs - own == listed
