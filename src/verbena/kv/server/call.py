"""What a command gets: the client, the database, the arguments and the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verbena.kv.commands.replies import Reply
    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server
    from verbena.kv.values.collections import Value

    AnyValue = TypeVar("AnyValue", bound=Value)


class Database(Protocol):
    """One keyspace. Expired keys do not exist. Every method is for the engine's thread."""

    index: int

    def get(self, key: bytes, kind: type[AnyValue]) -> AnyValue | None:
        """Returns the value, to be read or changed in place; None: no such key. WrongType: it has another
        type."""

    def obtain(self, key: bytes, kind: type[AnyValue]) -> AnyValue:
        """As get(), but stores an empty value if there is none. Call changed() afterwards."""

    def string(self, key: bytes) -> bytes | None:
        """Returns a string's bytes. WrongType if it is not a string."""

    def any(self, key: bytes) -> Value | bytes | None:
        """Returns the value of any type; None: no such key."""

    def type_of(self, key: bytes) -> str:
        """ "string", "hash", "list", "set", "zset" or "none"."""

    def put(
        self, key: bytes, value: Value | bytes, *, expires_ms: int = 0, keep_expiry: bool = False
    ) -> None:
        """Stores a value in place of the present one. An empty collection deletes the key."""

    def delete(self, key: bytes) -> bool:
        """Deletes a key and returns whether it existed. Call changed() afterwards."""

    def changed(self, key: bytes, *effect: bytes, event: str = "") -> None:
        """Must follow every change of a key: wakes clients that watch it or wait for it, counts the change,
        deletes the key if its collection is empty now, and logs `effect`, a command with this one key.
        Without `effect` the log gets the command itself, once, or the key's value if the command is declared
        `explicit`. `event` is the name for keyspace notifications; "": none."""

    def exists(self, key: bytes) -> bool: ...

    def expires_ms(self, key: bytes) -> int:
        """Returns the Unix time in ms at which it expires; 0: never; -1: there is no such key."""

    def set_expires_ms(self, key: bytes, expires_ms: int) -> None:
        """Sets the Unix time in ms at which the key expires; 0: never."""

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Returns the next cursor, 0 at the end, and about `count` keys. A scan returns every key that exists
        throughout."""

    def random_key(self) -> bytes | None: ...

    def details(self, key: bytes) -> tuple[str, int, int, int] | None:
        """Returns type, bytes, seconds since the last use and access frequency of a key; None: no such
        key."""

    def clear(self) -> None: ...

    def __len__(self) -> int: ...


class Call:
    """One run of a command. `argv`: its arguments as received, beginning with the name."""

    __slots__ = ("argv", "client", "db", "now_ms", "server")

    def __init__(self, server: Server, client: Client, db: Database, argv: list[bytes], now_ms: int) -> None:
        self.server = server
        self.client = client
        self.db = db
        self.argv = argv
        self.now_ms = now_ms

    def database(self, index: int) -> Database | None:
        """Another database; None: there is none with that index."""
        databases: Sequence[Database] = self.server.databases  # type: ignore[assignment]
        return databases[index] if 0 <= index < len(databases) else None

    def block(
        self, keys: list[bytes], retry: Callable[[Call], Reply | None], timeout_s: float, empty: Reply
    ) -> Reply:
        """Blocks the client until a key changes and `retry` answers other than None; `empty` is the reply
        after `timeout_s` (0: never), and at once in a transaction. The command has tried once itself."""
        answer: Reply = self.server.blocking.block(self, keys, retry, timeout_s, empty)
        return answer

    @property
    def counts_frequency(self) -> bool:
        """Whether maxmemory-policy is an LFU policy: the engine then counts accesses instead of idle time."""
        return str(self.server.parameters.get("maxmemory-policy")).endswith("-lfu")
