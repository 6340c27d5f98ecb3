"""Large collections are freed in slices after the command that deleted them. Nothing here depends on time:
INFO counts what was freed in this way."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import redis
from kv.server.test_collections_memory import KINDS, fill

from verbena.kv.server.server import Server
from verbena.kv.values.collections import Hash, List, Set, SortedSet, Value

COUNT = 5_000
WAYS = {
    "DEL": lambda client: client.delete("big"),
    "UNLINK": lambda client: client.unlink("big"),
    "SET": lambda client: client.set("big", "small"),
    "RENAME": lambda client: client.rename("little", "big"),
    "FLUSHDB": lambda client: client.flushdb(),
    "expiry": lambda client: client.pexpireat("big", 1),
    "MULTI": lambda client: client.pipeline().delete("big").set("big", "small").execute(),
}


def freed(client: redis.Redis) -> tuple[int, int]:
    """The numbers of freed values and elements, once none is pending."""
    while (memory := client.info("memory"))["lazyfree_pending_objects"]:
        pass
    assert memory["lazyfree_pending_elements"] == 0
    return memory["lazyfreed_objects"], memory["lazyfreed_elements"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_collection_is_freed_in_slices(client: redis.Redis, kind: str, way: str):
    """All elements are freed, whichever command deleted them; used_memory excludes them once the command is
    answered."""
    client.set("little", "s")
    fill(client, kind, "big", COUNT)
    if kind == "set":
        client.srandmember("big")  # from now on the set also has a list of its members
    values, elements = freed(client)
    used = client.info("memory")["used_memory"]
    usage = client.memory_usage("big")
    WAYS[way](client)
    assert way == "FLUSHDB" or client.info("memory")["used_memory"] < used - usage * 0.9
    assert freed(client) == (values + 1, elements + COUNT)
    assert client.info("memory")["used_memory"] < used - usage * 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_evicted_is_freed_in_slices(client: redis.Redis, kind: str):
    fill(client, kind, "big", COUNT)
    values, elements = freed(client)
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", client.info("memory")["used_memory"] - 1000)
    try:
        client.set("small", "s")
        assert client.exists("big") == 0
        assert freed(client) == (values + 1, elements + COUNT)
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


def test_few_long_elements_are_freed_in_slices_and_few_short_ones_at_once(client: redis.Redis):
    client.hset("small", mapping={str(number): "s" for number in range(10)})
    client.rpush("long", *["l" * 100_000] * 10)
    values, elements = freed(client)
    client.delete("small")
    assert freed(client) == (values, elements)
    client.delete("long")
    assert freed(client) == (values + 1, elements + 10)


def test_a_collection_that_lives_on_under_another_key_keeps_its_elements(client: redis.Redis):
    fill(client, "hash", "big", COUNT)
    before = freed(client)
    client.rename("big", "other")
    assert freed(client) == before
    assert client.hlen("other") == COUNT


@pytest.mark.parametrize(
    "value",
    [
        Hash((b"%d" % n, b"v") for n in range(5000)),
        List(b"%d" % n for n in range(5000)),
        Set(b"%d" % n for n in range(5000)),
        SortedSet.of({b"%d" % n: float(n) for n in range(5000)}),
    ],
    ids=lambda value: value.TYPE,
)
def test_shed_takes_a_part_and_comes_to_an_end(value: Value):
    seen = [len(value)]
    while len(value):
        value.free_some(1024)
        seen.append(len(value))
    assert all(0 < before - after <= 2048 for before, after in pairwise(seen))
    assert len(seen) > 3


@pytest.mark.parametrize("kind", [Hash, List, Set], ids=lambda kind: kind.TYPE)
def test_the_collector_does_not_look_into_values(kind: type[Value]):
    """Values have no reference cycles, and traversing millions of elements would stall the store."""
    server = Server()
    value = kind([(b"a", b"b")]) if kind is Hash else kind([b"a"])
    server.databases[0].put(b"key", value)
    assert not gc.is_tracked(value)
    if isinstance(value, Hash):
        value[b"c"] = b"d"
        value.update([(b"e", b"f")])
    elif isinstance(value, List):
        value.append(b"c")
    elif isinstance(value, Set):
        value.add(b"c")
    gc.collect()
    assert not gc.is_tracked(value)


def test_the_collector_does_not_look_into_the_order_of_sorted_sets():
    """The order keeps its members in lists, and adds lists when it grows, shrinks or is rebuilt."""
    server, value = Server(), SortedSet.of({b"first": 1.0})
    server.databases[0].put(b"key", value)

    def tracked() -> int:
        gc.collect()
        order = value.order
        return sum(map(gc.is_tracked, [value, order, order._maxes, order._lists, *order._lists]))

    for number in range(20_000):
        value.put(b"%d" % number, float(number % 997))
    assert len(value.order._lists) > 5
    assert tracked() == 0
    value.remove_range(100, 15_000)
    assert tracked() == 0
    for number in range(20_000):
        value.discard(b"%d" % number)
        value.put(b"+%d" % number, float(number))
    assert tracked() <= 1  # one list may be newer than the last untracking
    made = SortedSet.of({b"%d" % number: 1.0 for number in range(5000)})
    assert not any(map(gc.is_tracked, made.order._lists))
