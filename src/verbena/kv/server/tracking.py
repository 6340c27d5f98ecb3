"""Caches at clients: who keeps what it has read, and how it hears of changes. The engine knows which keys
concern whom; here is what each client wants, and the sending."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.replies import Push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from verbena.kv.commands.declare import Command
    from verbena.kv.server.clients import Client

CHANNEL = b"__redis__:invalidate"  # where clients of RESP2 hear of it
Messages = list[tuple[list[int], list[bytes] | None]]


@dataclass
class Wish:
    """How a client wants to be told."""

    redirect: int = 0  # the client that hears it instead; 0: itself
    broadcasts: bool = False  # of all keys with a prefix, whoever has read them
    opt_in: bool = False  # only what is read right after CLIENT CACHING YES
    opt_out: bool = False  # but for what is read right after CLIENT CACHING NO
    skips_own: bool = False  # not what it has changed itself
    prefixes: set[bytes] = field(default_factory=set)
    caching: bool = False  # CLIENT CACHING was said
    broken: bool = False  # the other client has gone

    @property
    def is_off_now(self) -> bool:
        """What is read now is not remembered."""
        return self.broadcasts or (self.opt_in and not self.caching) or (self.opt_out and self.caching)


class Tracking:
    """Of all clients. Each one's wish is its Client.tracking."""

    def __init__(self, engine: _native.kv.Engine, find: Callable[[int], Client | None]) -> None:
        self._engine = engine
        self._find = find
        self.clients = 0

    def start(self, client: Client, wish: Wish, prefixes: Iterable[bytes] = ()) -> None:
        """Or goes on in another way; prefixes are added to those it has."""
        before = client.tracking
        if before is None:
            self.clients += 1
        else:
            wish.caching, wish.prefixes = before.caching, before.prefixes
        wish.prefixes.update(prefixes)
        client.tracking = wish
        self._engine.track(client.id, wish.prefixes, broadcasts=wish.broadcasts, skips_own=wish.skips_own)
        client.rule()

    def stop(self, client: Client) -> None:
        if client.tracking is None:
            return
        self.clients -= 1
        client.tracking = None
        self._engine.untrack(client.id)

    def remember(self, client: Client, wish: Wish, command: Command, argv: list[bytes]) -> None:
        """After a command of its: the keys that it has read."""
        if wish.is_off_now or "readonly" not in command.flags or "pubsub" in command.flags:
            return
        keys = [argv[at] for at in command.key_positions(argv) if 0 < at < len(argv)]
        if keys:
            self._engine.remember(client.id, keys)

    def deliver(self, messages: Messages) -> None:
        """Keys that have changed, None for all of them, to those who have read them."""
        for numbers, keys in messages:
            encoded: dict[int, bytes] = {}  # once for each version of the protocol
            for number in numbers:
                client = self._find(number)
                if client is not None and client.tracking is not None:
                    self._send(client, client.tracking, keys, encoded)

    def _send(self, client: Client, wish: Wish, keys: list[bytes] | None, encoded: dict[int, bytes]) -> None:
        to: Client | None = client
        if wish.redirect:
            to = self._find(wish.redirect)
            if to is None and not self._engine.client(wish.redirect).here:
                wish.broken = True
                if client.native.version > 2:
                    client.native.reply(Push((b"tracking-redir-broken", wish.redirect)))
        # Who has said nothing to the program speaks RESP2, and listens to nothing.
        if to is None:
            return
        version = to.native.version
        if version == 2 and not (wish.redirect and to.is_subscriber):
            return
        if version not in encoded:
            push = Push((b"invalidate", keys) if version > 2 else (b"message", CHANNEL, keys))
            encoded[version] = _native.kv.encode(push, version)
        to.native.write(encoded[version])
