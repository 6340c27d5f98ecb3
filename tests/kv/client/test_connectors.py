"""redis-py and valkey-py over sessions: what works over TCP works here."""

from __future__ import annotations

import asyncio
import importlib
import queue
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


def test_a_thread_listens_while_another_subscribes(client: Any) -> None:
    """As pubsub.run_in_thread() does: one thread only receives. Closing the connection ends its wait."""
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    subscriber = client.pubsub()
    subscriber.subscribe("first")
    assert subscriber.get_message(timeout=5)["type"] == "subscribe"

    def listen() -> None:
        try:
            for message in subscriber.listen():
                heard.put(message["channel"])
        except Exception as error:  # the library's ConnectionError
            heard.put(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    subscriber.subscribe("second")
    assert heard.get(timeout=5) == b"second"
    client.publish("first", "hello")
    assert heard.get(timeout=5) == b"first"
    connection = subscriber.connection
    connection.retry = type(connection.retry)(None, 0)  # it would connect again
    connection._sock.close()
    assert isinstance(heard.get(timeout=5), Exception)
    thread.join(5)
    assert not thread.is_alive()
    subscriber.close()  # else valkey-py does so when it is collected, perhaps while its pool holds the lock


@pytest.mark.parametrize("protocol", [2, 3])
async def test_publish_and_subscribe_by_asyncio(store: Store, library: str, protocol: int) -> None:
    """Messages arrive while nothing else does; a wait without one ends in time."""
    module = importlib.import_module(f"{library}.asyncio")
    pool = ASYNC_POOLS[library](store.sessions, protocol=protocol)
    client = getattr(module, CLASSES[library])(connection_pool=pool)
    subscriber = client.pubsub()
    await subscriber.subscribe("news")
    assert (await subscriber.get_message(timeout=5))["type"] == "subscribe"
    assert await subscriber.get_message(timeout=0.05) is None
    waiting = asyncio.create_task(subscriber.get_message(timeout=5))
    await asyncio.sleep(0)
    assert await client.publish("news", "hello") == 1
    assert (await waiting)["data"] == b"hello"
    await subscriber.aclose()
    await client.aclose()
    await pool.disconnect()


async def test_tasks_get_their_turn_by_asyncio(store: Store, library: str) -> None:
    """Replies mostly come at once; a task that awaits only them lets others run."""
    module = importlib.import_module(f"{library}.asyncio")
    pool = ASYNC_POOLS[library](store.sessions)
    client = getattr(module, CLASSES[library])(connection_pool=pool)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for number in range(200):
        await client.set("key", number)
    counting.cancel()
    assert turns > 3
    await client.aclose()
    await pool.disconnect()


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
