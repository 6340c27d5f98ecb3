"""maxmemory with every policy, and expiry."""

from __future__ import annotations

import pytest
import redis
from support.kv.kv_store import Store

POLICIES = [
    "allkeys-lru", "volatile-lru", "allkeys-lfu", "volatile-lfu", "allkeys-random", "volatile-random",
    "volatile-ttl",
]  # fmt: skip
VALUE = "x" * 1000


@pytest.fixture
def full(client: redis.Redis):
    """Sets maxmemory to about a thousand values above the present use."""
    while client.info("memory")["lazyfree_pending_objects"]:
        pass  # flushed values count until they have been freed
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", used + 1_200_000)
    yield client
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "noeviction")
    client.flushall()


def fill(client: redis.Redis, count: int, **options: object) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.set(f"key:{number}", VALUE, **options)
        pipe.execute()


@pytest.mark.parametrize("policy", POLICIES)
def test_keys_are_evicted_by_the_policy(full: redis.Redis, policy: str):
    """Writes succeed, memory stays within the limit, and volatile policies keep keys without an expiry."""
    full.config_set("maxmemory-policy", policy)
    full.set("lasting", "stays")
    fill(full, 3000, ex=1000)
    assert full.info("memory")["used_memory"] <= full.info("memory")["maxmemory"] + 100_000
    assert full.info("stats")["evicted_keys"] > 0
    assert 0 < full.dbsize() < 3000
    if policy.startswith("volatile"):
        assert full.get("lasting") == "stays"


def test_what_was_used_lately_stays_with_lru(full: redis.Redis):
    """Sampling is approximate: a key that is read continuously is among those that stay."""
    full.config_set("maxmemory-policy", "allkeys-lru")
    full.config_set("maxmemory-samples", 64)
    full.set("used", VALUE)
    for start in range(0, 3000, 100):
        fill(full, start + 100)
        assert full.get("used") == VALUE or start > 500


def test_without_a_policy_writes_are_refused_and_reads_are_not(full: redis.Redis):
    """noeviction: OOM for commands that need memory, in native code and in Python; deleting frees memory."""
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        fill(full, 3000)
    count = full.dbsize()
    assert count > 500
    assert full.get("key:0") == VALUE
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        full.lpush("list", "x")
    with full.pipeline() as pipe, pytest.raises(redis.exceptions.OutOfMemoryError):
        pipe.set("a", 1).execute()
    for number in range(count // 2):
        full.delete(f"key:{number}")
    assert full.set("a", 1)


def test_keys_expire_when_asked_for_and_by_themselves(store: Store, client: redis.Redis):
    """Lazily: a read finds nothing at once. Actively: DBSIZE decreases without any access."""
    client.set("soon", 1, px=1)
    while client.get("soon") is not None:
        pass
    client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    with client.pipeline(transaction=False) as pipe:
        for number in range(500):
            pipe.set(f"e{number}", number, px=5)
        pipe.execute()
    client.set("lasting", 1)
    before = client.info("stats")["expired_keys"]
    client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    while client.dbsize() > 1:
        pass
    assert client.info("stats")["expired_keys"] == before + 500
    assert client.ttl("lasting") == -1


def test_flushing_gives_the_memory_back(client: redis.Redis):
    """The memory is released in slices, but soon."""
    client.flushall()
    while client.info("memory")["lazyfree_pending_objects"]:
        pass
    empty = client.info("memory")["used_memory"]
    fill(client, 2000)
    assert client.info("memory")["used_memory"] > empty + 1_000_000
    client.flushall()
    while client.info("memory")["used_memory"] > empty + 100_000:
        pass
