"""Who listens to what, and the sending of messages. They are not kept: who is not there misses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.replies import Push
from verbena.kv.values.glob import matches

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server

Listeners = dict[bytes, dict[int, "Client"]]


class PubSub:
    """`channels`, `patterns` and `shard_channels`: name → the clients that listen."""

    def __init__(self, server: Server) -> None:
        self._server = server
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
        """To those who listen to the channel or to a pattern that it matches; how many messages that made."""
        sent = self._send(self.channels.get(channel), (b"message", channel, message))
        for pattern, listeners in self.patterns.items():
            if matches(pattern, channel):
                sent += self._send(listeners, (b"pmessage", pattern, channel, message))
        return sent

    def publish_to_shard(self, channel: bytes, message: bytes) -> int:
        return self._send(self.shard_channels.get(channel), (b"smessage", channel, message))

    def _send(self, listeners: dict[int, Client] | None, items: Iterable[bytes]) -> int:
        if not listeners:
            return 0
        push = Push(tuple(items))
        encoded: dict[int, bytes] = {}  # once for each version of the protocol
        for client in listeners.values():
            version = client.native.version
            if version not in encoded:
                encoded[version] = _native.kv.encode(push, version)
            if client is self._server.current:
                self._server.pushes.append(encoded[version])
            else:
                client.native.write(encoded[version])
        return len(listeners)
