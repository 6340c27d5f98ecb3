"""Client-side caching: the guarantees of CLIENT TRACKING beyond the comparison with redis-server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection
from support.kv.kv_store import StartStore, Store
from support.kv.resp import RespConnection, pack


@pytest.fixture
def wire(store: Store, client: redis.Redis) -> Iterator[RespConnection]:
    with RespConnection(store.port) as connected:
        connected("HELLO", 3)
        yield connected


def pushes(wire: RespConnection) -> list[Any]:
    """The pushes that have arrived until now."""
    wire.send("PING", "end")
    found = []
    while (value := wire.read()) != b"end":
        found.append(value)
    return found


def stats(client: redis.Redis) -> tuple[int, int, int]:
    found = client.info("stats")
    return tuple(found[f"tracking_total_{what}"] for what in ("keys", "items", "prefixes"))  # type: ignore[return-value]


def about(client: redis.Redis, number: int) -> tuple[str, str]:
    [found] = [one for one in client.client_list() if int(one["id"]) == number]
    return found["flags"], found["redir"]


def test_client_list_and_info_show_tracking(wire: RespConnection, client: redis.Redis):
    """Flags t, B and R, `redir`, and the counts of INFO increase and decrease."""
    number = wire("CLIENT", "ID")
    assert about(client, number) == ("N", "-1")
    wire("CLIENT", "TRACKING", "on")
    wire("MGET", "a", "b")
    client.get("a")
    assert about(client, number) == ("t", "0")
    assert client.info("clients")["tracking_clients"] == 1
    assert stats(client) == (2, 2, 0)
    client.set("a", 1)
    assert pushes(wire) == [[b"invalidate", [b"a"]]]
    assert stats(client) == (1, 1, 0)
    wire("CLIENT", "TRACKING", "off")
    assert (about(client, number), stats(client)) == (("N", "-1"), (0, 0, 0))
    wire("CLIENT", "TRACKING", "on", "BCAST", "PREFIX", "a", "PREFIX", "b", "REDIRECT", number)
    assert (about(client, number), stats(client)) == (("tB", str(number)), (0, 0, 2))
    wire("RESET")
    assert client.info("clients")["tracking_clients"] == 0
    assert stats(client) == (0, 0, 0)


def test_a_broken_redirection_is_pushed_and_flagged(wire: RespConnection, store: Store, client: redis.Redis):
    """After the other client has disconnected: a push instead of each message, and the flag R."""
    with RespConnection(store.port) as other:
        gone = other("CLIENT", "ID")
        assert wire("CLIENT", "TRACKING", "on", "REDIRECT", gone) == "OK"
        wire("GET", "a")
    while any(int(one["id"]) == gone for one in client.client_list()):
        time.sleep(0.01)
    client.set("a", 1)
    assert pushes(wire) == [[b"tracking-redir-broken", gone]]
    assert about(client, wire("CLIENT", "ID")) == ("tR", str(gone))


def test_the_table_of_keys_is_bounded(wire: RespConnection, client: redis.Redis):
    """Above tracking-table-max-keys, keys are invalidated; a smaller limit takes effect soon."""
    client.config_set("tracking-table-max-keys", 10)
    wire("CLIENT", "TRACKING", "on")
    for number in range(100):
        wire.send("GET", f"key:{number}")
    replies, told = 0, set()
    while replies < 100:
        value = wire.read()
        replies += value is None
        told |= {value[1][0]} if value is not None else set()
    told |= {push[1][0] for push in pushes(wire)}
    assert len(told) == 90
    assert stats(client) == (10, 10, 0)
    client.config_set("tracking-table-max-keys", 3)
    while stats(client) != (3, 3, 0):
        time.sleep(0.01)
    told |= {push[1][0] for push in pushes(wire)}
    assert len(told) == 97
    client.mset({f"key:{number}": 1 for number in range(100)})
    told |= {push[1][0] for push in pushes(wire)}
    assert len(told) == 100
    client.config_set("tracking-table-max-keys", 1_000_000)


def test_the_keys_of_a_closed_client_are_no_longer_tracked(
    wire: RespConnection, store: Store, client: redis.Redis
):
    """No entry of a closed client stays, even for keys that other clients still track."""
    wire("CLIENT", "TRACKING", "on")
    wire("MGET", *(f"key:{number}" for number in range(0, 5000, 100)))
    for _ in range(20):
        with RespConnection(store.port) as short:
            short("CLIENT", "TRACKING", "on")
            short("MGET", *(f"key:{number}" for number in range(5000)))
    while stats(client) != (50, 50, 0):
        time.sleep(0.01)
    client.set("key:100", 1)
    assert pushes(wire) == [[b"invalidate", [b"key:100"]]]


def test_evicted_keys_are_invalidated(wire: RespConnection, client: redis.Redis):
    """The client whose own command caused the eviction is notified too, even with NOLOOP."""
    client.config_set("maxmemory-policy", "allkeys-random")
    for mode in ((), ("NOLOOP",), ("BCAST", "NOLOOP")):
        while client.info("memory")["lazyfree_pending_objects"]:
            pass  # flushed values count until they have been freed
        names = [f"key:{number}" for number in range(20)]
        client.mset(dict.fromkeys(names, "x" * 10_000))
        wire("CLIENT", "TRACKING", "on", *mode)
        wire("MGET", *names)
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 50_000)
        wire("SET", "small", "x")
        told = {key.decode() for push in pushes(wire) for key in push[1]} - {"small"}
        gone = {name for name in names if not client.exists(name)}
        assert gone
        assert told == gone
        wire("CLIENT", "TRACKING", "off")
        client.config_set("maxmemory", 0)
        client.flushall()
    client.config_set("maxmemory-policy", "noeviction")


def test_swapped_databases_make_everything_old(wire: RespConnection, client: redis.Redis):
    """Redis sends nothing here, and leaves caches stale."""
    client.set("x", "here")
    wire("CLIENT", "TRACKING", "on")
    assert wire("GET", "x") == b"here"
    client.swapdb(0, 1)
    assert pushes(wire) == [[b"invalidate", None]]
    assert wire("GET", "x") is None


def test_a_push_taken_by_a_blocked_pop_is_invalidated_at_the_pusher(
    wire: RespConnection, store: Store, client: redis.Redis
):
    """The client that pushed is notified, because the removal was not its own change."""
    wire("CLIENT", "TRACKING", "on", "BCAST", "NOLOOP")
    with RespConnection(store.port) as waiting:
        waiting.send("BLPOP", "list", 0)
        while not client.info("clients")["blocked_clients"]:
            time.sleep(0.01)
        assert wire("RPUSH", "list", "a") == 1
        assert waiting.read() == [b"list", b"a"]
    assert pushes(wire) == [[b"invalidate", [b"list"]]]


def test_restricted_users_and_strange_bytes(wire: RespConnection, client: redis.Redis):
    """Prefixes and keys may contain any bytes; a user without permission for CLIENT TRACKING gets an
    error."""
    odd = bytes(range(256))
    wire("CLIENT", "TRACKING", "on", "BCAST", "PREFIX", odd[128:])
    assert "overlaps" in wire("CLIENT", "TRACKING", "on", "BCAST", "PREFIX", odd[128:200])
    client.set(odd[128:] + b"more", 1)
    assert pushes(wire) == [[b"invalidate", [odd[128:] + b"more"]]]
    for words in (("on", "PREFIX"), (odd,), ("on", odd), ("on", "REDIRECT", odd), ("on", "REDIRECT", "-1")):
        assert wire("CLIENT", "TRACKING", *words).startswith("ERR")
    wire("CLIENT", "TRACKING", "off")
    wire("CLIENT", "TRACKING", "on")
    wire("GET", odd)
    wire("GET", b"")
    client.set(odd, 1)
    client.set(b"", 1)
    assert pushes(wire) == [[b"invalidate", [odd]], [b"invalidate", [b""]]]
    client.acl_setuser("few", enabled=True, nopass=True, commands=["+get", "+auth"], keys=["a*"])
    try:
        wire("AUTH", "few", "")
        assert wire("CLIENT", "TRACKING", "on").startswith("NOPERM")
        assert wire("GET", "b").startswith("NOPERM")
        wire("GET", "a")
        client.set("a", 1)
        client.set("b", 1)
        assert [wire.read()] == [[b"invalidate", [b"a"]]]
    finally:
        client.acl_deluser("few")


def test_redis_pys_cache(store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    """redis-py's own cache answers until another client has changed the key."""
    # redis-py does not enable it for version 7.0
    monkeypatch.setattr(CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.0.0")
    with store.client(protocol=3, cache_config=CacheConfig(), decode_responses=True) as caching:
        for value in ("one", "two", "three"):
            client.set("x", value)
            while caching.get("x") != value:
                pass  # the invalidation is on its way
            before = client.info("commandstats")["cmdstat_get"]["calls"]
            assert [caching.get("x") for _ in range(10)] == [value] * 10
            assert client.info("commandstats")["cmdstat_get"]["calls"] == before
        client.hset("h", "f", "1")
        assert caching.hgetall("h") == {"f": "1"}
        client.hset("h", "f", "2")
        while caching.hgetall("h") != {"f": "2"}:
            pass
        client.flushall()
        while caching.get("x") is not None or caching.hgetall("h"):
            pass


class Cacher:
    """Caches what it reads until it is invalidated, and accesses a few keys at random."""

    KEYS = tuple(f"key:{number}".encode() for number in range(12))

    def __init__(self, port: int, mode: tuple[str, ...], seed: int) -> None:
        self.wire = RespConnection(port)
        self.cache: dict[bytes, Any] = {}
        self.mode, self.chance, self.heard = mode, random.Random(seed), 0
        self.opt_in = [("CLIENT", "CACHING", "yes")] if "OPTIN" in mode else []
        self.wire("HELLO", 3)
        assert self.wire("CLIENT", "TRACKING", "on", *mode) == "OK"

    def run(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Returns the replies. An invalidation between replies applies to keys that were read before it."""
        self.wire.socket.sendall(b"".join(pack(*words) for words in commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            value = self.wire.read()
            if isinstance(value, list) and value and value[0] == b"invalidate":
                self.heard += 1
                for key in value[1] if value[1] is not None else list(self.cache):
                    self.cache.pop(key, None)
                continue
            words = commands[len(replies)]
            replies.append(value)
            if words[0] == "GET":
                self.cache[words[1]] = value
            elif "NOLOOP" in self.mode:
                for key in words[1:]:  # it is not notified of its own changes
                    self.cache.pop(key, None)
        return replies

    def read_all(self) -> None:
        for key in self.KEYS:
            self.run(*self.opt_in, ("GET", key))

    def work(self, steps: int) -> None:
        opt_in = self.opt_in
        for _ in range(steps):
            key, other = self.chance.sample(self.KEYS, 2)
            value = self.chance.randrange(1000)
            [commands] = self.chance.choices(
                [
                    [*opt_in, ("GET", key)],
                    [("SET", other, value), *opt_in, ("GET", key)],
                    [*opt_in, ("GET", key), ("INCR", key), ("DEL", other)],
                    [("SET", key, value, "PX", self.chance.randrange(1, 30))],
                    [("RENAME", key, other)],
                    [("MULTI",), ("GET", key), ("SET", key, value), ("SET", other, value), ("EXEC",)],
                    [("FLUSHDB",)],
                ],
                [60, 20, 8, 5, 3, 3, 1],
            )
            self.run(*commands)
            if commands[0] == ("MULTI",):  # where the reply to GET was QUEUED
                self.cache.pop(key, None)


MODES: list[tuple[str, ...]] = [
    (),
    (),
    ("NOLOOP",),
    ("BCAST",),
    ("BCAST", "NOLOOP"),
    ("OPTIN",),
    ("OPTIN", "NOLOOP"),
]


@pytest.mark.parametrize("limit", [1_000_000, 4])
def test_no_cache_is_wrong_when_all_is_quiet(store: Store, client: redis.Redis, limit: int):
    """Clients in every mode, and one without tracking, read and write the same keys at random."""
    client.config_set("tracking-table-max-keys", limit)
    cachers = [Cacher(store.port, mode, seed) for seed, mode in enumerate(MODES)]

    def write() -> None:
        chance = random.Random(99)
        with store.client() as writer:
            for _ in range(1500):
                writer.set(chance.choice(Cacher.KEYS), chance.randrange(1000))

    threads = [threading.Thread(target=cacher.work, args=(400,)) for cacher in cachers]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for cacher in cachers:
        cacher.read_all()
    cachers[0].run(*(("SET", key, "last") for key in Cacher.KEYS[::3]))
    time.sleep(0.2)  # all keys with a short expiry have expired
    client.mget(Cacher.KEYS)
    kept = 0
    with store.client() as plain:
        for cacher in cachers:
            cacher.run(("PING",))
            kept += len(cacher.cache)
            assert cacher.cache == {key: plain.get(key) for key in cacher.cache}, cacher.mode
            assert cacher.heard
            cacher.wire.close()
    assert kept
    client.config_set("tracking-table-max-keys", 1_000_000)


def test_the_bound_of_the_configuration(start: StartStore):
    store = start("--kv-tracking-table-max-keys", "7")
    with store.client(decode_responses=True) as client:
        assert client.config_get("tracking-table-max-keys") == {"tracking-table-max-keys": "7"}
