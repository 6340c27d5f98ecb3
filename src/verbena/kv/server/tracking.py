"""Client-side caching (CLIENT TRACKING): the options of each client, and the sending of invalidations. The
engine records which client has read which key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.replies import Push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from verbena.kv.commands.declare import Command
    from verbena.kv.server.clients import Client

CHANNEL = b"__redis__:invalidate"  # the channel of RESP2 clients
Messages = list[tuple[list[int], list[bytes] | None]]


@dataclass
class TrackingOptions:
    """The options of CLIENT TRACKING."""

    redirect: int = 0  # the client that gets the messages; 0: itself
    broadcasts: bool = False  # BCAST: for all keys with a prefix, read or not
    opt_in: bool = False  # only keys read by the command after CLIENT CACHING YES
    opt_out: bool = False  # not keys read by the command after CLIENT CACHING NO
    skips_own: bool = False  # NOLOOP: not for changes by this client
    prefixes: set[bytes] = field(default_factory=set)
    caching: bool = False  # CLIENT CACHING applies to the next command
    broken: bool = False  # the client of `redirect` has disconnected

    @property
    def ignores_reads(self) -> bool:
        """Keys that are read now are not tracked."""
        return self.broadcasts or (self.opt_in and not self.caching) or (self.opt_out and self.caching)


class Tracking:
    """The tracking of all clients; the options of each are in Client.tracking. `find` returns a client that
    Python knows."""

    def __init__(self, engine: _native.kv.Engine, find: Callable[[int], Client | None]) -> None:
        self._engine = engine
        self._find = find
        self.clients = 0

    def start(self, client: Client, options: TrackingOptions, prefixes: Iterable[bytes] = ()) -> None:
        """Starts tracking, or changes its options; prefixes are added to the present ones."""
        before = client.tracking
        if before is None:
            self.clients += 1
        else:
            options.caching, options.prefixes = before.caching, before.prefixes
        options.prefixes.update(prefixes)
        client.tracking = options
        self._engine.track(
            client.id, options.prefixes, broadcasts=options.broadcasts, skips_own=options.skips_own
        )
        client.update_dispatch()

    def stop(self, client: Client) -> None:
        if client.tracking is None:
            return
        self.clients -= 1
        client.tracking = None
        self._engine.untrack(client.id)

    def remember(self, client: Client, options: TrackingOptions, command: Command, argv: list[bytes]) -> None:
        """After a client's command: records the keys that it has read."""
        if options.ignores_reads or "readonly" not in command.flags or "pubsub" in command.flags:
            return
        keys = [argv[at] for at in command.key_positions(argv) if 0 < at < len(argv)]
        if keys:
            self._engine.remember(client.id, keys)

    def deliver(self, messages: Messages) -> None:
        """Sends invalidations: lists of clients with the changed keys, None for all keys."""
        for numbers, keys in messages:
            encoded: dict[int, bytes] = {}  # by protocol version
            for number in numbers:
                client = self._find(number)
                if client is not None and client.tracking is not None:
                    self._send(client, client.tracking, keys, encoded)

    def _send(
        self, client: Client, options: TrackingOptions, keys: list[bytes] | None, encoded: dict[int, bytes]
    ) -> None:
        to: Client | None = client
        if options.redirect:
            to = self._find(options.redirect)
            if to is None and not self._engine.client(options.redirect).here:
                options.broken = True
                if client.native.version > 2:
                    client.native.reply(Push((b"tracking-redir-broken", options.redirect)))
        # A client that Python does not know speaks RESP2 and has no subscription.
        if to is None:
            return
        version = to.native.version
        if version == 2 and not (options.redirect and to.is_subscriber):
            return
        if version not in encoded:
            push = Push((b"invalidate", keys) if version > 2 else (b"message", CHANNEL, keys))
            encoded[version] = _native.kv.encode(push, version)
        to.native.write(encoded[version])
