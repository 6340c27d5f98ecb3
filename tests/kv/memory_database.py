"""The engine's keyspace in plain Python, for tests of commands. It implements kv.call.Database, and records
the calls of changed(), so that a test can replay the log."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from verbena.kv.acl.user import User
from verbena.kv.commands import load
from verbena.kv.commands.declare import Command, find
from verbena.kv.commands.replies import NULL_ARRAY, CommandError, NullArray, Pairs, Reply, WrongType
from verbena.kv.server.call import Call
from verbena.kv.storage.serial import duplicate
from verbena.kv.values.collections import Hash, List, Set, SortedSet

load()

TYPES = {Hash: "hash", List: "list", Set: "set", SortedSet: "zset", bytes: "string"}


class MemoryDatabase:
    def __init__(self, server: MemoryServer, index: int) -> None:
        self.server = server
        self.index = index
        self.values: dict[bytes, Any] = {}
        self.expiries: dict[bytes, int] = {}

    def any(self, key: bytes) -> Any:
        expires = self.expiries.get(key)
        if expires is not None and expires <= self.server.now_ms:
            self.delete(key)
        return self.values.get(key)

    def get(self, key: bytes, kind: type[Any]) -> Any:
        value = self.any(key)
        if value is not None and not isinstance(value, kind):
            raise WrongType()
        return value

    def obtain(self, key: bytes, kind: type[Any]) -> Any:
        value = self.get(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def string(self, key: bytes) -> bytes | None:
        value: bytes | None = self.get(key, bytes)
        return value

    def type_of(self, key: bytes) -> str:
        value = self.any(key)
        return "none" if value is None else TYPES[type(value)]

    def put(self, key: bytes, value: Any, *, expires_ms: int = 0, keep_expiry: bool = False) -> None:
        assert isinstance(value, tuple(TYPES)), type(value)
        if not isinstance(value, bytes) and not value:
            self.delete(key)
            return
        self.values[key] = value
        if not keep_expiry:
            self.set_expires_ms(key, expires_ms)

    def delete(self, key: bytes) -> bool:
        self.expiries.pop(key, None)
        return self.values.pop(key, None) is not None

    def changed(self, key: bytes, *effect: bytes, event: str = "") -> None:
        command = self.server.running
        assert command is not None
        assert command.is_write, f"{command.name} is not declared to write"
        value = self.values.get(key)
        if value is not None and not isinstance(value, bytes) and not value:
            self.delete(key)
        self.server.events.append((event, key))
        if effect:
            assert effect[1] == key, f"{command.name}: an effect names its one key: {effect}"
            self.server.log.append((self.index, list(effect)))
        elif command.explicit:
            image = _copied(self.values.get(key))
            self.server.log.append((self.index, (key, image, self.expiries.get(key, 0))))
        else:
            self.server.tell_command(self.index)

    def exists(self, key: bytes) -> bool:
        return self.any(key) is not None

    def expires_ms(self, key: bytes) -> int:
        return self.expiries.get(key, 0) if self.exists(key) else -1

    def set_expires_ms(self, key: bytes, expires_ms: int) -> None:
        if expires_ms:
            self.expiries[key] = expires_ms
        else:
            self.expiries.pop(key, None)

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        keys = [key for key in list(self.values) if self.exists(key)]
        end = cursor + count
        return (end if end < len(keys) else 0), keys[cursor:end]

    def random_key(self) -> bytes | None:
        keys = [key for key in list(self.values) if self.exists(key)]
        return random.choice(keys) if keys else None

    def details(self, key: bytes) -> tuple[str, int, int, int] | None:
        return (self.type_of(key), 0, 0, 0) if self.exists(key) else None

    def clear(self) -> None:
        self.values.clear()
        self.expiries.clear()

    def __len__(self) -> int:
        return len(self.values)


class MemoryServer:
    """Sixteen databases and a dispatcher. Blocked commands are kept in `waiting`, for the test to retry."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.databases = [MemoryDatabase(self, index) for index in range(16)]
        self.running: Command | None = None
        self.argv: list[bytes] = []
        self.log: list[tuple[int, Any]] = []
        self.events: list[tuple[str, bytes]] = []
        self.waiting: list[tuple[list[bytes], Any, float]] = []
        self.blocking = self
        self.parameters = {"maxmemory-policy": "noeviction"}
        self._told = False
        self.client = SimpleNamespace(user=User("default"))
        self.client.user.may_do_all = True

    def database(self, index: int) -> MemoryDatabase | None:
        return self.databases[index] if 0 <= index < len(self.databases) else None

    def block(self, call: Call, keys: list[bytes], retry: Any, timeout_s: float, empty: Reply) -> Reply:
        self.waiting.append((keys, retry, timeout_s))
        return empty

    def tell_command(self, index: int) -> None:
        if not self._told:
            self.log.append((index, self.argv))
        self._told = True

    def call(self, argv: list[bytes], db: int = 0) -> Call:
        return Call(self, self.client, self.databases[db], argv, self.now_ms)  # type: ignore[arg-type]

    def run(self, *words: bytes | str | int | float, db: int = 0) -> Any:
        """Runs a command and returns its reply; an error is returned like any other reply."""
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        command = find(argv)
        if command is None or command.function is None:
            return self._native(argv, self.databases[db])
        skipped = 1 + command.name.count(" ")
        if len(argv) < abs(command.arity) or (command.arity > 0 and len(argv) != command.arity):
            name = command.name.lower().replace(" ", "|")
            return CommandError(f"ERR wrong number of arguments for '{name}' command")
        self.running, self.argv, self._told = command, argv, False
        before = len(self.log)
        try:
            return command.function(self.call(argv, db), *argv[skipped:])
        except CommandError as error:
            if len(self.log) != before:
                raise AssertionError(f"{argv} fails after it changed something") from error
            return error
        finally:
            for database in self.databases:
                for key, value in database.values.items():
                    assert isinstance(value, bytes) or value, f"{argv} leaves {key!r} empty"

    def _native(self, argv: list[bytes], db: MemoryDatabase) -> Reply:
        """The subset of the engine's native commands that tests of other commands need."""
        name, *words = argv
        if name.upper() in (b"SET", b"DEL", b"PEXPIREAT"):
            self.log.append((db.index, argv))
        match name.upper():
            case b"SET":
                db.put(words[0], words[1])
                return "OK"
            case b"GET":
                try:
                    return db.string(words[0])
                except WrongType as error:
                    return error
            case b"DEL":
                return sum(db.exists(key) and db.delete(key) for key in words)
            case b"TYPE":
                return db.type_of(words[0])
            case b"EXISTS":
                return sum(db.exists(key) for key in words)
            case b"PEXPIREAT":
                if not db.exists(words[0]):
                    return 0
                db.set_expires_ms(words[0], int(words[1]))
                return 1
            case b"PEXPIRETIME":
                return db.expires_ms(words[0]) or -1 if db.exists(words[0]) else -2
        return CommandError(f"ERR unknown command {name!r}")

    def replayed(self) -> MemoryServer:
        """Another server, to which the whole log was applied."""
        other = MemoryServer(self.now_ms)
        for index, entry in self.log:
            if isinstance(entry, tuple):
                key, image, expires = entry
                if image is None:
                    other.databases[index].delete(key)
                else:
                    other.databases[index].put(key, _copied(image), expires_ms=expires)
            else:
                assert not isinstance(other.run(*entry, db=index), CommandError), entry
        return other

    def contents(self) -> list[dict[bytes, Any]]:
        return [
            {key: (_plain(db.any(key)), db.expires_ms(key)) for key in list(db.values) if db.exists(key)}
            for db in self.databases
        ]


def _copied(value: Any) -> Any:
    return None if value is None else duplicate(value)


def _plain(value: Any) -> Any:
    if not isinstance(value, bytes) and not (isinstance(value, Set) and value.sample_order is not None):
        assert value.memory_bytes == duplicate(value).memory_bytes  # counted piece by piece, or all at once
    if isinstance(value, SortedSet):
        assert sorted((score, member) for member, score in value.scores.items()) == list(value.order)
        return ("zset", dict(value.scores))
    if isinstance(value, Set):
        if value.sample_order is not None:
            assert value.sample_order == sorted(value, key=lambda member: value[member] or 0)
        return ("set", frozenset(value))
    if isinstance(value, List):
        return ("list", list(value))
    return ("hash", dict(value)) if isinstance(value, Hash) else ("string", value)


def wire(reply: Any, protocol: int) -> Any:
    """A reply as (type byte, content), as a client of that protocol version reads it."""
    three = protocol == 3
    match reply:
        case CommandError():
            return ("-", reply.text)
        case None:
            return ("_", None) if three else ("$", None)
        case NullArray():
            return ("_", None) if three else ("*", None)
        case bool() | int():
            return (":", int(reply))
        case float():
            return ("," if three else "$", b"%.17g" % reply)
        case str():
            return ("+", reply)
        case bytes():
            return ("$", reply)
        case dict():
            flat = [wire(word, protocol) for pair in reply.items() for word in pair]
            return ("%" if three else "*", flat)
        case frozenset():
            return ("~" if three else "*", [wire(word, protocol) for word in reply])
        case Pairs():
            if three:
                return ("*", [("*", [wire(word, protocol) for word in pair]) for pair in reply.items])
            return ("*", [wire(word, protocol) for pair in reply.items for word in pair])
        case list() | tuple():
            return ("*", [wire(word, protocol) for word in reply])
    raise AssertionError(f"no reply: {reply!r}")


__all__ = ["NULL_ARRAY", "MemoryDatabase", "MemoryServer", "wire"]
