"""What random commands do not reach: large HyperLogLogs, encodings, coordinates, and declarations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from kv.memory_database import MemoryServer, wire
from kv.redis_peer import MISSING, SERVER, Peer, redis_server

from verbena.kv.commands.declare import COMMANDS

pytestmark = pytest.mark.skipif(SERVER is None, reason=MISSING)
MINE = ("string", "generic", "hash", "list", "set", "sorted_set", "bitmap", "hyperloglog", "geo")


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as path:
        connection = Peer(path, 2)
        yield connection
        connection.close()


def test_hyperloglogs_count_to_the_unit_and_can_be_exchanged(peer):
    """From the first element through the sparse to the dense form: the count and the string equal those of
    Redis."""
    server = MemoryServer()
    peer.run("FLUSHALL")
    added = 0
    for size in (1, 10, 100, 700, 2000, 5000, 20000):
        for start in range(added, size, 1000):
            elements = [f"element:{number}" for number in range(start, min(start + 1000, size))]
            assert ("1" in repr(peer.run("PFADD", "p", *elements))) == bool(
                server.run("PFADD", "p", *elements)
            )
        added = size
        assert peer.run("PFCOUNT", "p") == (":", server.run("PFCOUNT", "p"))
        ours, theirs = server.run("GET", "p"), peer.run("GET", "p")[1]
        assert ours[4] == theirs[4]
        peer.run("SET", "ours", ours)
        server.run("SET", "theirs", theirs)
        assert peer.run("PFCOUNT", "ours") == (":", server.run("PFCOUNT", "theirs"))
        assert peer.run("PFCOUNT", "ours", "p") == (":", server.run("PFCOUNT", "theirs", "p"))


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "k", "12"), ("SET", "k", "x" * 44), ("SET", "k", "x" * 45), ("RPUSH", "k", "a"),
        ("SADD", "k", "1", "2"), ("SADD", "k", "1", "a"), ("SADD", "k", *range(513)), ("HSET", "k", "a", "b"),
        ("HSET", "k", "a", "x" * 65), ("ZADD", "k", "1", "a"), ("ZADD", "k", "1", "x" * 65),
    ],
)  # fmt: skip
def test_encodings(peer, words):
    server = MemoryServer()
    peer.run("FLUSHALL")
    peer.run(*words)
    server.run(*words)
    assert wire(server.run("OBJECT", "ENCODING", "k"), 2) == peer.run("OBJECT", "ENCODING", "k")


def test_coordinates(peer):
    """Positions to the last digit, and missing members."""
    server = MemoryServer()
    peer.run("FLUSHALL")
    add = ("GEOADD", "g", "13.361389", "38.115556", "Palermo", "-179.999", "-85.05", "far", "0", "0", "zero")
    assert wire(server.run(*add), 2) == peer.run(*add)
    for words in (
        ("GEOPOS", "g", "Palermo", "nobody", "far", "zero"),
        ("GEOPOS", "none", "a"),
        (
            "GEOSEARCH",
            "g",
            "FROMLONLAT",
            "15",
            "37",
            "BYRADIUS",
            "200",
            "km",
            "WITHCOORD",
            "WITHDIST",
            "WITHHASH",
        ),
        ("GEOHASH", "g", "Palermo", "far", "zero"),
    ):
        assert wire(server.run(*words), 2) == peer.run(*words)


def test_declarations_are_those_of_redis(peer):
    """Arity, flags and key positions as COMMAND reports them."""
    differing = {}
    for name, command in COMMANDS.items():
        if " " in name or command.function is None or command.group not in MINE:
            continue
        if name == "OBJECT":
            continue  # only its subcommands have an effect
        row = peer.run("COMMAND", "INFO", name)[1][0][1]
        arity, flags, keys = row[1][1], {flag for _, flag in row[2][1]}, tuple(word for _, word in row[3:6])
        if (command.arity, command.flags, command.keys) != (arity, frozenset(flags), keys):
            differing[name] = (
                (arity, sorted(flags), keys),
                (command.arity, sorted(command.flags), command.keys),
            )
    assert not differing


@pytest.mark.parametrize("policy", ["allkeys-lfu", "volatile-lfu", "allkeys-lru", "noeviction"])
def test_object_reports_frequency_or_idle_time_as_the_policy_counts(peer, store, policy):
    """OBJECT FREQ needs an LFU policy, OBJECT IDLETIME any other; a new key counts 5, after one GET 6."""
    with redis.Redis(port=store.port) as client:
        for one in (client.execute_command, peer.run):
            one("FLUSHALL")
            one("CONFIG", "SET", "maxmemory-policy", policy)
            one("SET", "k", "v")
        for words in (
            ("OBJECT", "FREQ", "k"),
            ("OBJECT", "FREQ", "missing"),
            ("OBJECT", "IDLETIME", "k"),
            ("OBJECT", "IDLETIME", "missing"),
            ("GET", "k"),
            ("OBJECT", "FREQ", "k"),
            ("SET", "k", "a longer value, which does not fit where the first one was stored" * 9),
            ("STRLEN", "k"),
        ):
            try:
                ours = client.execute_command(*words)
            except redis.ResponseError as error:
                ours = str(error)
            theirs = peer.run(*words)[1]
            assert str(theirs).removeprefix("ERR ") == ("OK" if ours is True else str(ours)), words
        client.config_set("maxmemory-policy", "noeviction")
    peer.run("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_the_frequency_counter_grows_and_survives_writes(store):
    """Hundreds of reads raise the counter beyond its first steps; a SET of a larger value keeps it."""
    with redis.Redis(port=store.port) as client:
        client.config_set("maxmemory-policy", "allkeys-lfu")
        client.set("often", "v")
        for _ in range(2000):
            client.get("often")
        often = client.object("FREQ", "often")
        assert 8 <= often <= 60
        client.set("often", "v" * 5000)
        assert client.object("FREQ", "often") >= often
        client.config_set("maxmemory-policy", "noeviction")
