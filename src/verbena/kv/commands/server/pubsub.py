"""Publish and subscribe: channels, patterns of channels, and shard channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NO_REPLY, CommandError, Push, Reply
from verbena.kv.server.call import Call
from verbena.kv.server.clients import Client
from verbena.kv.server.pubsub import Listeners, PubSub
from verbena.kv.values.glob import matches

BASIC = "pubsub noscript loading stale"
INTROSPECTION = "pubsub loading stale"


@dataclass(frozen=True)
class Kind:
    """A kind of subscription: the prefix of its commands, and where the server and a client keep theirs."""

    prefix: str
    listeners: Callable[[PubSub], Listeners]
    own: Callable[[Client], set[bytes]]


CHANNELS = Kind("", lambda pubsub: pubsub.channels, lambda client: client.channels)
PATTERNS = Kind("p", lambda pubsub: pubsub.patterns, lambda client: client.patterns)
SHARD = Kind("s", lambda pubsub: pubsub.shard_channels, lambda client: client.shard_channels)


def count(client: Client, kind: Kind) -> int:
    """Returns the number of subscriptions that a confirmation reports: shard channels count separately."""
    return len(client.shard_channels) if kind is SHARD else len(client.channels) + len(client.patterns)


def subscribe_to(call: Call, kind: Kind, names: tuple[bytes, ...]) -> Reply:
    client, pubsub = call.client, call.server.pubsub
    if call.server.execution.in_transaction and client.native.version == 2:
        raise CommandError("ERR SUBSCRIBE isn't allowed inside a transaction in RESP2")
    for name in names:
        pubsub.subscribe(kind.listeners(pubsub), kind.own(client), client, name)
        client.native.reply(Push((f"{kind.prefix}subscribe".encode(), name, count(client, kind))))
    call.server.clients.limits.apply(client)
    client.update_dispatch()
    return NO_REPLY


def unsubscribe_from(call: Call, kind: Kind, names: tuple[bytes, ...]) -> Reply:
    client, pubsub = call.client, call.server.pubsub
    event = f"{kind.prefix}unsubscribe".encode()
    for name in names or sorted(kind.own(client)):
        pubsub.unsubscribe(kind.listeners(pubsub), kind.own(client), client, name)
        client.native.reply(Push((event, name, count(client, kind))))
        names = names or (name,)
    if not names:
        client.native.reply(Push((event, None, count(client, kind))))
    call.server.clients.limits.apply(client)
    client.update_dispatch()
    return NO_REPLY


def _declare(kind: Kind, since: str, slots: tuple[int, int, int], *, to: str, from_: str) -> None:
    """Declares the commands that subscribe and unsubscribe; `slots`: the arguments that have a hash slot."""
    prefix = kind.prefix.upper()

    @command(f"{prefix}SUBSCRIBE", arity=-2, flags=BASIC, channels=slots, group="pubsub", since=since,
             summary=f"Subscribes to {to}.")  # fmt: skip
    def subscribe(call: Call, *names: bytes) -> Reply:
        return subscribe_to(call, kind, names)

    @command(f"{prefix}UNSUBSCRIBE", arity=-1, flags=BASIC, channels=slots, group="pubsub", since=since,
             summary=f"Unsubscribes from {from_}, or from all of them.")  # fmt: skip
    def unsubscribe(call: Call, *names: bytes) -> Reply:
        return unsubscribe_from(call, kind, names)


_declare(CHANNELS, "2.0.0", (0, 0, 0), to="one or more channels", from_="channels")
_declare(PATTERNS, "2.0.0", (0, 0, 0), to="the channels that match one or more patterns", from_="patterns")
_declare(SHARD, "7.0.0", (1, -1, 1), to="one or more shard channels", from_="shard channels")


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


def _declare_queries(kind: Kind, prefix: str, since: str, what: str) -> None:
    """Declares the subcommands of PUBSUB that list channels and count their subscribers."""

    @command(f"PUBSUB {prefix}CHANNELS", arity=-2, flags=INTROSPECTION, group="pubsub", since=since,
             summary=f"Lists the {what}s with at least one subscriber.")  # fmt: skip
    def channels(call: Call, *pattern: bytes) -> Reply:
        if len(pattern) > 1:
            name = f"pubsub|{prefix.lower()}channels"
            raise CommandError(f"ERR wrong number of arguments for '{name}' command")
        listeners = kind.listeners(call.server.pubsub)
        return [name for name in listeners if not pattern or matches(pattern[0], name)]

    @command(f"PUBSUB {prefix}NUMSUB", arity=-2, flags=INTROSPECTION, group="pubsub", since=since,
             summary=f"Returns the number of subscribers of each given {what}.")  # fmt: skip
    def numsub(call: Call, *names: bytes) -> Reply:
        listeners = kind.listeners(call.server.pubsub)
        return [item for name in names for item in (name, len(listeners.get(name, ())))]


_declare_queries(CHANNELS, "", "2.8.0", "channel")
_declare_queries(SHARD, "SHARD", "7.0.0", "shard channel")


@command("PUBSUB NUMPAT", arity=2, flags=INTROSPECTION, group="pubsub", since="2.8.0",
         summary="Returns the number of distinct pattern subscriptions.")  # fmt: skip
def numpat(call: Call) -> Reply:
    return len(call.server.pubsub.patterns)
