"""Channels, patterns and shard channels in both protocols, and keyspace notifications."""

from __future__ import annotations

import pytest
import redis
from support.kv.kv_store import Store
from support.kv.resp import RespConnection


@pytest.fixture(params=[2, 3])
def wire(request: pytest.FixtureRequest, store: Store):
    with RespConnection(store.port) as connected:
        connected("HELLO", request.param)
        yield connected


def test_messages_reach_channels_and_patterns(wire: RespConnection, client: redis.Redis):
    """One message for the channel and one for each matching pattern; PUBLISH returns their number."""
    assert wire("SUBSCRIBE", "news", "sport") == [b"subscribe", b"news", 1]
    assert wire.read() == [b"subscribe", b"sport", 2]
    assert wire("PSUBSCRIBE", "n*") == [b"psubscribe", b"n*", 3]
    assert client.publish("news", "hello") == 2
    assert wire.read() == [b"message", b"news", b"hello"]
    assert wire.read() == [b"pmessage", b"n*", b"news", b"hello"]
    assert client.publish("nothing-sport", "x") == 1
    assert wire.read() == [b"pmessage", b"n*", b"nothing-sport", b"x"]
    assert client.publish("elsewhere", "x") == 0


def test_unsubscribing_counts_down_and_then_nothing_comes(wire: RespConnection, client: redis.Redis):
    """Without names it unsubscribes from all; if there are none, one reply with a null comes."""
    wire("SUBSCRIBE", "a")
    assert wire("UNSUBSCRIBE", "a") == [b"unsubscribe", b"a", 0]
    assert wire("UNSUBSCRIBE") == [b"unsubscribe", None, 0]
    wire("PSUBSCRIBE", "p*")
    assert wire("PUNSUBSCRIBE") == [b"punsubscribe", b"p*", 0]
    assert client.publish("a", "x") == client.publish("pq", "x") == 0
    assert wire("PING") == "PONG"


def test_shard_channels_are_apart(wire: RespConnection, client: redis.Redis):
    """SPUBLISH reaches SSUBSCRIBE only, PUBLISH does not reach it, and both are counted separately."""
    wire("SUBSCRIBE", "c")
    assert wire("SSUBSCRIBE", "c") == [b"ssubscribe", b"c", 1]
    assert client.execute_command("SPUBLISH", "c", "shard") == 1
    assert wire.read() == [b"smessage", b"c", b"shard"]
    assert client.execute_command("PUBSUB", "SHARDCHANNELS") == ["c"]
    assert client.execute_command("PUBSUB", "SHARDNUMSUB", "c", "d") == ["c", 1, "d", 0]
    assert wire("SUNSUBSCRIBE") == [b"sunsubscribe", b"c", 0]


def test_a_resp2_subscriber_may_only_listen(store: Store):
    """Other commands are refused until it has unsubscribed; the reply to PING is a message. RESP3 has no such
    limit."""
    with RespConnection(store.port) as old:
        old("SUBSCRIBE", "c")
        assert str(old("GET", "a")).startswith("ERR Can't execute 'get'")
        assert old("PING") == [b"pong", b""]
        assert old("PING", "x") == [b"pong", b"x"]
        old("UNSUBSCRIBE", "c")
        assert old("GET", "no-such-key") is None
    with RespConnection(store.port) as new:
        new("HELLO", 3)
        new("SUBSCRIBE", "c")
        assert new("GET", "no-such-key") is None
        assert new("PING") == "PONG"


def test_pubsub_counts_subscribers(store: Store, client: redis.Redis):
    """Channels with subscribers, the number of subscribers of each, and the number of patterns."""
    with RespConnection(store.port) as one, RespConnection(store.port) as other:
        one("SUBSCRIBE", "x")
        other("SUBSCRIBE", "x")
        other("SUBSCRIBE", "y")
        other("PSUBSCRIBE", "z*")
        assert sorted(client.pubsub_channels()) == ["x", "y"]
        assert client.pubsub_channels("x*") == ["x"]
        assert client.pubsub_numsub("x", "none") == [("x", 2), ("none", 0)]
        assert client.pubsub_numpat() == 1
    while client.pubsub_channels() or client.pubsub_numpat():
        pass  # a closed client is no longer subscribed


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_receives_messages(store: Store, client: redis.Redis, protocol: int):
    """Its PubSub class, with a handler and with patterns."""
    heard = []
    with store.client(protocol=protocol, decode_responses=True) as own, own.pubsub() as pubsub:
        pubsub.subscribe(**{"c": lambda message: heard.append(message["data"])})
        pubsub.psubscribe("p*")
        for _ in range(2):
            assert pubsub.get_message(timeout=10)
        client.publish("c", "one")
        client.publish("pq", "two")
        messages = [pubsub.get_message(timeout=10) for _ in range(2)]
        assert heard == ["one"]
        assert {"type": "pmessage", "pattern": "p*", "channel": "pq", "data": "two"} in messages


def test_changes_of_keys_are_published_as_configured(store: Store, client: redis.Redis):
    """Both kinds of channels; classes that are not configured publish nothing."""
    with RespConnection(store.port) as wire:
        client.config_set("notify-keyspace-events", "KEA")
        assert client.config_get("notify-keyspace-events") == {"notify-keyspace-events": "AKE"}
        wire("PSUBSCRIBE", "__key*@0__:*")
        client.set("k", "1")
        assert wire.read() == [b"pmessage", b"__key*@0__:*", b"__keyspace@0__:k", b"set"]
        assert wire.read() == [b"pmessage", b"__key*@0__:*", b"__keyevent@0__:set", b"k"]
        client.config_set("notify-keyspace-events", "Egx")
        client.set("k", "2")
        client.delete("k")
        assert wire.read() == [b"pmessage", b"__key*@0__:*", b"__keyevent@0__:del", b"k"]
        client.set("short", "1", px=1)
        assert wire.read()[2:] == [b"__keyevent@0__:expire", b"short"]
        assert wire.read()[2:] == [b"__keyevent@0__:expired", b"short"]
        client.config_set("notify-keyspace-events", "")


def test_a_letter_that_means_nothing_is_refused(client: redis.Redis):
    with pytest.raises(redis.ResponseError, match="Invalid event class"):
        client.config_set("notify-keyspace-events", "KQ")
