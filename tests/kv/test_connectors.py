"""redis-py and valkey-py over sessions: what works over TCP works here."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.kv.store import Store

from verbena import kv

POOLS = {"redis": kv.redis_pool, "valkey": kv.valkey_pool}
ASYNC_POOLS = {"redis": kv.async_redis_pool, "valkey": kv.async_valkey_pool}
CLASSES = {"redis": "Redis", "valkey": "Valkey"}
LONG = bytes(range(250)) * (70 << 12)  # longer than a message of a session may be


@pytest.fixture(params=["redis", "valkey"])
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture(params=[2, 3])
def client(store: Store, library: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    pool = POOLS[library](store.sessions, protocol=request.param)
    client = getattr(importlib.import_module(library), CLASSES[library])(connection_pool=pool)
    client.flushall()
    yield client
    client.close()
    pool.disconnect()


def test_commands_and_pipelines(client: Any) -> None:
    assert client.set("key", "value")
    assert client.get("key") == b"value"
    with client.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"key {number}", number)
        assert pipe.execute() == [True] * 100
    assert client.hset("hash", mapping={"a": "1", "b": "2"}) == 2
    assert client.hgetall("hash") == {b"a": b"1", b"b": b"2"}
    big = b"x" * (2 << 20)
    client.set("big", big)
    assert client.get("big") == big


def test_transactions(client: Any) -> None:
    with client.pipeline() as pipe:
        pipe.watch("count")
        pipe.multi()
        pipe.incr("count").incr("count")
        assert pipe.execute() == [1, 2]
    with client.pipeline() as pipe:
        pipe.watch("count")
        client.incr("count")
        pipe.multi()
        pipe.incr("count")
        with pytest.raises(Exception, match=r"Watched variable changed|WATCH"):
            pipe.execute()
    assert client.get("count") == b"3"


def test_publish_and_subscribe(client: Any) -> None:
    with client.pubsub() as subscriber:
        subscriber.subscribe("news")
        subscriber.psubscribe("n*")
        kinds = [subscriber.get_message(timeout=5)["type"] for _ in range(2)]
        assert kinds == ["subscribe", "psubscribe"]
        assert subscriber.get_message(timeout=0.05) is None
        assert client.publish("news", "hello") == 2
        first, second = subscriber.get_message(timeout=5), subscriber.get_message(timeout=5)
        assert sorted([first["type"], second["type"]]) == ["message", "pmessage"]
        assert first["data"] == second["data"] == b"hello"


def test_what_is_longer_than_a_message(client: Any) -> None:
    client.set("long", LONG)
    assert client.pipeline(transaction=False).mget(["long", "long"]).strlen("long").execute() == [
        [LONG, LONG],
        len(LONG),
    ]


def test_blocking_pop(client: Any) -> None:
    popped: list[Any] = []
    thread = threading.Thread(target=lambda: popped.append(client.blpop(["queue"], timeout=10)))
    thread.start()
    client.rpush("queue", "work")
    thread.join(10)
    assert [tuple(item) for item in popped] == [(b"queue", b"work")]


async def test_asyncio(store: Store, library: str) -> None:
    module = importlib.import_module(f"{library}.asyncio")
    pool = ASYNC_POOLS[library](store.sessions)
    client = getattr(module, CLASSES[library])(connection_pool=pool)
    await client.set("key", "value")
    assert await asyncio.gather(*(client.get("key") for _ in range(20))) == [b"value"] * 20
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("n", 1).incr("n").execute() == [True, 2]
    await client.set("long", LONG)
    assert await client.mget(["long", "long"]) == [LONG, LONG]
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("news")
        assert (await subscriber.get_message(timeout=5))["type"] == "subscribe"
        await client.publish("news", "hello")
        assert (await subscriber.get_message(timeout=5))["data"] == b"hello"
    await client.aclose()
    await pool.disconnect()


def test_tracking_clients_get_invalidations(store: Store) -> None:
    """CLIENT TRACKING over sessions: the message comes with the next reply, or by itself."""
    redis = pytest.importorskip("redis")
    heard: list[Any] = []
    pool, other = (kv.redis_pool(store.sessions, protocol=3) for _ in range(2))
    tracking, writer = pool.get_connection(), redis.Redis(connection_pool=other)
    tracking._parser.set_invalidation_push_handler(lambda push: heard.append(push[1]))
    tracking.send_command("CLIENT", "TRACKING", "on")
    assert tracking.read_response() == b"OK"
    for value in (b"1", b"2"):
        writer.set("x", value)
        tracking.send_command("GET", "x")
        assert tracking.read_response() == value
    writer.set("x", 3)
    while not tracking.can_read(timeout=5):
        pass
    tracking.read_response(push_request=True)
    assert heard == [[b"x"], [b"x"]]
    pool.release(tracking)
    pool.disconnect()
    other.disconnect()
