"""Messages to whoever listens: channels, patterns of channels, and channels of a shard."""

from __future__ import annotations

from collections.abc import Callable

from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NO_REPLY, CommandError, Push, Reply
from verbena.kv.server.call import Call
from verbena.kv.server.clients import Client
from verbena.kv.server.pubsub import Listeners, PubSub
from verbena.kv.values.glob import matches

BASIC = "pubsub noscript loading stale"
Kind = tuple[str, Callable[[PubSub], Listeners], Callable[[Client], set[bytes]]]

CHANNELS: Kind = ("", lambda pubsub: pubsub.channels, lambda client: client.channels)
PATTERNS: Kind = ("p", lambda pubsub: pubsub.patterns, lambda client: client.patterns)
SHARD: Kind = ("s", lambda pubsub: pubsub.shard_channels, lambda client: client.shard_channels)


def count(client: Client, kind: Kind) -> int:
    """What is told with each (un)subscription: channels of shards are counted apart."""
    return len(client.shard_channels) if kind is SHARD else len(client.channels) + len(client.patterns)


def subscribe_to(call: Call, kind: Kind, names: tuple[bytes, ...]) -> Reply:
    client, pubsub = call.client, call.server.pubsub
    prefix, listeners, own = kind
    if call.server.execution.in_transaction and client.native.version == 2:
        raise CommandError("ERR SUBSCRIBE isn't allowed inside a transaction in RESP2")
    for name in names:
        pubsub.subscribe(listeners(pubsub), own(client), client, name)
        client.native.reply(Push((f"{prefix}subscribe".encode(), name, count(client, kind))))
    call.server.clients.limits.apply(client)
    client.rule()
    return NO_REPLY


def unsubscribe_from(call: Call, kind: Kind, names: tuple[bytes, ...]) -> Reply:
    client, pubsub = call.client, call.server.pubsub
    prefix, listeners, own = kind
    word = f"{prefix}unsubscribe".encode()
    for name in names or sorted(own(client)):
        pubsub.unsubscribe(listeners(pubsub), own(client), client, name)
        client.native.reply(Push((word, name, count(client, kind))))
        names = names or (name,)
    if not names:
        client.native.reply(Push((word, None, count(client, kind))))
    call.server.clients.limits.apply(client)
    client.rule()
    return NO_REPLY


@command(
    "SUBSCRIBE",
    arity=-2,
    flags=BASIC,
    group="pubsub",
    summary="Subscribes to one or more channels.",
    since="2.0.0",
)
def subscribe(call: Call, *channels: bytes) -> Reply:
    return subscribe_to(call, CHANNELS, channels)


@command(
    "UNSUBSCRIBE",
    arity=-1,
    flags=BASIC,
    group="pubsub",
    summary="Unsubscribes from channels, or from all of them.",
    since="2.0.0",
)
def unsubscribe(call: Call, *channels: bytes) -> Reply:
    return unsubscribe_from(call, CHANNELS, channels)


@command(
    "PSUBSCRIBE",
    arity=-2,
    flags=BASIC,
    group="pubsub",
    summary="Subscribes to the channels that match one or more patterns.",
    since="2.0.0",
)
def psubscribe(call: Call, *patterns: bytes) -> Reply:
    return subscribe_to(call, PATTERNS, patterns)


@command(
    "PUNSUBSCRIBE",
    arity=-1,
    flags=BASIC,
    group="pubsub",
    summary="Unsubscribes from patterns, or from all of them.",
    since="2.0.0",
)
def punsubscribe(call: Call, *patterns: bytes) -> Reply:
    return unsubscribe_from(call, PATTERNS, patterns)


@command(
    "SSUBSCRIBE",
    arity=-2,
    flags=BASIC,
    channels=(1, -1, 1),
    group="pubsub",
    summary="Subscribes to one or more shard channels.",
    since="7.0.0",
)
def ssubscribe(call: Call, *channels: bytes) -> Reply:
    return subscribe_to(call, SHARD, channels)


@command(
    "SUNSUBSCRIBE",
    arity=-1,
    flags=BASIC,
    channels=(1, -1, 1),
    group="pubsub",
    summary="Unsubscribes from shard channels, or from all of them.",
    since="7.0.0",
)
def sunsubscribe(call: Call, *channels: bytes) -> Reply:
    return unsubscribe_from(call, SHARD, channels)


@command(
    "PUBLISH",
    arity=3,
    flags="pubsub loading stale fast",
    group="pubsub",
    summary="Publishes a message to a channel and returns how many clients received it.",
    since="2.0.0",
)
def publish(call: Call, channel: bytes, message: bytes) -> Reply:
    return call.server.pubsub.publish(channel, message)


@command(
    "SPUBLISH",
    arity=3,
    flags="pubsub loading stale fast",
    channels=(1, 1, 1),
    group="pubsub",
    summary="Publishes a message to a shard channel.",
    since="7.0.0",
)
def spublish(call: Call, channel: bytes, message: bytes) -> Reply:
    return call.server.pubsub.publish_to_shard(channel, message)


def _active(listeners: Listeners, pattern: tuple[bytes, ...]) -> list[bytes]:
    return [name for name in listeners if not pattern or matches(pattern[0], name)]


def _limited(pattern: tuple[bytes, ...], name: str) -> tuple[bytes, ...]:
    if len(pattern) > 1:
        raise CommandError(f"ERR wrong number of arguments for '{name}' command")
    return pattern


LOOK = "pubsub loading stale"


@command(
    "PUBSUB CHANNELS",
    arity=-2,
    flags=LOOK,
    group="pubsub",
    summary="Lists the channels with at least one subscriber.",
    since="2.8.0",
)
def channels(call: Call, *pattern: bytes) -> Reply:
    return _active(call.server.pubsub.channels, _limited(pattern, "pubsub|channels"))


@command(
    "PUBSUB NUMSUB",
    arity=-2,
    flags=LOOK,
    group="pubsub",
    summary="Returns the number of subscribers of each given channel.",
    since="2.8.0",
)
def numsub(call: Call, *names: bytes) -> Reply:
    listeners = call.server.pubsub.channels
    return [item for name in names for item in (name, len(listeners.get(name, ())))]


@command(
    "PUBSUB NUMPAT",
    arity=2,
    flags=LOOK,
    group="pubsub",
    summary="Returns the number of distinct pattern subscriptions.",
    since="2.8.0",
)
def numpat(call: Call) -> Reply:
    return len(call.server.pubsub.patterns)


@command(
    "PUBSUB SHARDCHANNELS",
    arity=-2,
    flags=LOOK,
    group="pubsub",
    summary="Lists the shard channels with at least one subscriber.",
    since="7.0.0",
)
def shardchannels(call: Call, *pattern: bytes) -> Reply:
    return _active(call.server.pubsub.shard_channels, _limited(pattern, "pubsub|shardchannels"))


@command(
    "PUBSUB SHARDNUMSUB",
    arity=-2,
    flags=LOOK,
    group="pubsub",
    summary="Returns the number of subscribers of each given shard channel.",
    since="7.0.0",
)
def shardnumsub(call: Call, *names: bytes) -> Reply:
    listeners = call.server.pubsub.shard_channels
    return [item for name in names for item in (name, len(listeners.get(name, ())))]
