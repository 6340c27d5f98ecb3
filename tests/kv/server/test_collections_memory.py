"""maxmemory also counts values in Python: hashes, lists, sets, sorted sets."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from kv.redis_peer import MISSING, redis_server

COUNT = 20_000
CONTENT = "c" * 60

Fill = Callable[[redis.client.Pipeline, str, int, int], object]


def _hash(pipe: redis.client.Pipeline, key: str, first: int, last: int) -> object:
    return pipe.hset(key, mapping={f"field:{n:08}": CONTENT for n in range(first, last)})


def _list(pipe: redis.client.Pipeline, key: str, first: int, last: int) -> object:
    return pipe.rpush(key, *[f"{n:08}{CONTENT}" for n in range(first, last)])


def _set(pipe: redis.client.Pipeline, key: str, first: int, last: int) -> object:
    return pipe.sadd(key, *[f"{n:08}{CONTENT}" for n in range(first, last)])


def _zset(pipe: redis.client.Pipeline, key: str, first: int, last: int) -> object:
    return pipe.zadd(key, {f"{n:08}{CONTENT}": n for n in range(first, last)})


KINDS: dict[str, Fill] = {"hash": _hash, "list": _list, "set": _set, "zset": _zset}
POLICIES = [
    "allkeys-lru", "volatile-lru", "allkeys-lfu", "volatile-lfu", "allkeys-random", "volatile-random",
    "volatile-ttl",
]  # fmt: skip


def fill(client: redis.Redis, kind: str, key: str, count: int) -> None:
    with client.pipeline(transaction=False) as pipe:
        for first in range(0, count, 500):
            KINDS[kind](pipe, key, first, min(first + 500, count))
        pipe.execute()


def used(client: redis.Redis) -> int:
    while client.info("memory")["lazyfree_pending_objects"]:
        pass  # flushed values count until they have been freed
    return client.info("memory")["used_memory"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    folder: Path = tmp_path_factory.mktemp("redis")
    with redis_server(folder) as path, redis.Redis(unix_socket_path=str(path)) as client:
        yield client


@pytest.mark.parametrize("kind", KINDS)
def test_used_memory_grows_by_what_a_collection_holds(client: redis.Redis, original: redis.Redis, kind: str):
    """At least by the bytes of the elements, and within a small factor of redis-server's value. MEMORY USAGE
    agrees. All of it is released when the elements are deleted one by one, or with the key."""
    original.flushall()
    grown = []
    for each in (client, original):
        before = used(each)
        fill(each, kind, "big", COUNT)
        grown.append(used(each) - before)
    ours, theirs = grown
    assert COUNT * len(CONTENT) < ours
    assert theirs / 2 < ours < theirs * 3
    assert client.memory_usage("big") == pytest.approx(ours, rel=0.02)
    assert client.memory_usage("big", samples=0) == client.memory_usage("big")
    before = used(client) - client.memory_usage("big")
    client.copy("big", "other")
    assert used(client) == pytest.approx(before + 2 * client.memory_usage("big"), rel=0.02)
    client.delete("other")
    while client.exists("big"):
        if kind == "hash":
            client.hdel("big", *client.hkeys("big")[:5000])
        elif kind == "list":
            client.ltrim("big", 5000, -1)
        elif kind == "set":
            client.spop("big", 5000)
        else:
            client.zremrangebyrank("big", 0, 4999)
    assert used(client) < before + 10_000
    assert client.memory_usage("big") is None


def test_one_long_value_in_a_hash_of_short_ones_is_seen(client: redis.Redis):
    """Every element is counted, instead of an estimate from a sample."""
    fill(client, "hash", "h", 1000)
    before = used(client)
    client.hset("h", "field:00000500", "x" * 5_000_000)
    assert used(client) - before == pytest.approx(5_000_000, rel=0.01)
    client.hset("h", "field:00000500", "short")
    assert abs(used(client) - before) < 10_000


@pytest.mark.parametrize("policy", POLICIES)
def test_large_hashes_are_evicted_by_the_policy(client: redis.Redis, policy: str):
    """A keyspace of hashes only: memory stays within the limit, and volatile policies keep keys without an
    expiry."""
    client.hset("lasting", "field", "stays")
    bound = used(client) + 5_000_000
    client.config_set("maxmemory", bound)
    client.config_set("maxmemory-policy", policy)
    evicted = client.info("stats")["evicted_keys"]
    try:
        for number in range(40):
            with client.pipeline(transaction=False) as pipe:
                _hash(pipe, f"hash:{number}", 0, 2000)
                pipe.expire(f"hash:{number}", 1000 + number)
                pipe.execute()
            one = client.memory_usage(f"hash:{number}") or 0
            assert client.info("memory")["used_memory"] <= bound + 2 * one
        assert client.info("stats")["evicted_keys"] > evicted
        assert 0 < client.dbsize() < 41
        if policy.startswith("volatile"):
            assert client.hget("lasting", "field") == "stays"
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_policy_a_collection_that_grows_is_refused(client: redis.Redis, kind: str):
    client.config_set("maxmemory", used(client) + 1_000_000)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(client, kind, "big", 100_000)
        assert client.info("memory")["used_memory"] < client.info("memory")["maxmemory"] + 200_000
        assert client.type("big") == kind
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("string", "x")
        client.delete("big")
        assert client.set("string", "x")
    finally:
        client.config_set("maxmemory", 0)
