"""Channels, patterns and their subscribers, and the sending of messages. Messages are not stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.replies import Push
from verbena.kv.server.notifications import CLASS_OF
from verbena.kv.values.glob import matches

if TYPE_CHECKING:
    from verbena.kv.server.client_table import Clients
    from verbena.kv.server.clients import Client

Listeners = dict[bytes, dict[int, "Client"]]


class PubSub:
    """`channels`, `patterns` and `shard_channels`: name → its subscribers."""

    def __init__(self, clients: Clients) -> None:
        self.events: frozenset[str] = frozenset()  # classes of keyspace events that are sent
        self._clients = clients
        self.channels: Listeners = {}
        self.patterns: Listeners = {}
        self.shard_channels: Listeners = {}

    def subscribe(self, listeners: Listeners, own: set[bytes], client: Client, name: bytes) -> None:
        own.add(name)
        listeners.setdefault(name, {})[client.id] = client

    def unsubscribe(self, listeners: Listeners, own: set[bytes], client: Client, name: bytes) -> None:
        own.discard(name)
        there = listeners.get(name)
        if there is not None:
            there.pop(client.id, None)
            if not there:
                del listeners[name]

    def forget(self, client: Client) -> None:
        for listeners, own in (
            (self.channels, client.channels),
            (self.patterns, client.patterns),
            (self.shard_channels, client.shard_channels),
        ):
            for name in list(own):
                self.unsubscribe(listeners, own, client, name)

    def publish(self, channel: bytes, message: bytes) -> int:
        """Sends to the subscribers of the channel and of matching patterns; the number of messages sent."""
        sent = self._send(self.channels.get(channel), (b"message", channel, message))
        for pattern, listeners in self.patterns.items():
            if matches(pattern, channel):
                sent += self._send(listeners, (b"pmessage", pattern, channel, message))
        return sent

    def publish_to_shard(self, channel: bytes, message: bytes) -> int:
        return self._send(self.shard_channels.get(channel), (b"smessage", channel, message))

    def notify(self, database: int, kind: str, event: str, key: bytes) -> None:
        """Sends a keyspace event, if its class is chosen. `kind` "": the class that the event belongs to."""
        events = self.events
        if (kind or CLASS_OF.get(event, "g")) not in events:
            return
        if "K" in events:
            self.publish(b"__keyspace@%d__:" % database + key, event.encode())
        if "E" in events:
            self.publish(b"__keyevent@%d__:%s" % (database, event.encode()), key)

    def _send(self, listeners: dict[int, Client] | None, items: Iterable[bytes]) -> int:
        if not listeners:
            return 0
        push = Push(tuple(items))
        encoded: dict[int, bytes] = {}  # by protocol version
        for client in listeners.values():
            version = client.native.version
            if version not in encoded:
                encoded[version] = _native.kv.encode(push, version)
            if client is self._clients.current:
                self._clients.pushes.append(encoded[version])
            else:
                client.native.write(encoded[version])
        return len(listeners)
