"""Declares commands: a function each, with the facts that dispatch, COMMAND, ACL and the docs are built from.

    @command("HLEN", arity=2, flags="readonly fast", keys=(1, 1, 1), group="hash", summary="Returns …")
    def hlen(call: Call, key: bytes) -> Reply:
        value = call.db.get(key, Hash)
        return len(value) if value is not None else 0

The engine checks the arity, runs one command at a time, and logs the changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena._native.kv import NativeCommand, native_commands

if TYPE_CHECKING:
    from verbena.kv.commands.replies import Reply

Function = Callable[..., "Reply"]

FLAGS = frozenset(
    [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "blocking",
        "loading",
        "stale",
        "skip_monitor",
        "skip_slowlog",
        "asking",
        "fast",
        "no_auth",
        "may_replicate",
        "no_async_loading",
        "no_multi",
        "allow_busy",
        "movablekeys",
    ]
)
GROUPS = (
    "string", "generic", "hash", "list", "set", "sorted_set", "bitmap", "hyperloglog", "geo", "stream",
    "pubsub", "transactions", "connection", "server", "scripting", "cluster", "extension",
)  # fmt: skip
CATEGORIES = (  # of ACL rules
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
    "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction",
    "scripting",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One command, or one subcommand (`name` is then "CONFIG GET")."""

    name: str
    arity: int  # counts the name; negative: the minimum
    flags: frozenset[str]
    keys: tuple[int, int, int]  # first, last, step; (0, 0, 0): no keys, or `find_keys` locates them
    group: str
    summary: str
    since: str = "1.0.0"
    function: Function | None = None  # None: a native command
    find_keys: Callable[[list[bytes]], list[int]] | None = None  # positions, if they depend on the arguments
    explicit: bool = False  # the function logs its effects itself; else the log gets the command
    # ACL categories in addition to those that follow from flags and group.
    categories: frozenset[str] = frozenset()
    channels: tuple[int, int, int] = (0, 0, 0)  # as `keys`: arguments that have a slot but are not keys
    key_flags: tuple[str, str] = ("", "")  # Redis's key flags of the first key, and of the other keys

    @property
    def is_write(self) -> bool:
        return "write" in self.flags

    def key_positions(self, argv: list[bytes]) -> list[int]:
        if self.find_keys is not None:
            return self.find_keys(argv)
        first, last, step = self.keys
        if first == 0:
            return []
        return list(range(first, (last if last > 0 else len(argv) + last) + 1, step))


def _of_native(row: NativeCommand) -> Command:
    flags = (row.key_flags, row.key_flags)
    return Command(
        row.name, row.arity, frozenset(row.flags.split()), row.keys, row.group, row.summary, row.since,
        key_flags=flags,
    )  # fmt: skip


# Every command by its upper-case name: the native ones from the engine's table; @command adds the others.
COMMANDS: dict[str, Command] = {row.name: _of_native(row) for row in native_commands()}


def command(
    name: str,
    *,
    arity: int,
    flags: str = "",
    keys: tuple[int, int, int] = (0, 0, 0),
    group: str = "extension",
    summary: str,
    since: str = "1.0.0",
    find_keys: Callable[[list[bytes]], list[int]] | None = None,
    explicit: bool = False,
    categories: str = "",
    channels: tuple[int, int, int] = (0, 0, 0),
    key_flags: str | tuple[str, str] = "",
) -> Callable[[Function], Function]:
    """Declares the function that runs `name` ("HSET"; a subcommand: "CONFIG GET"). It is called with the
    Call and the arguments after the name as bytes; it returns the reply or raises CommandError.

    `explicit`: the function logs its effects with call.db.changed(key, effect…). Required if it changes more
    than one key, or if running it again could have another effect.

    `key_flags`: what it does with its keys, in the flags of COMMAND GETKEYSANDFLAGS; a pair: with the first
    key, and with the others. Default: "RW update" for writes, else "RO access".

    Raises ValueError if the name is already declared, or a flag, a category or the group is unknown."""
    chosen, added = frozenset(flags.split()), frozenset(categories.split())
    if chosen - FLAGS:
        raise ValueError(f"{name}: no such flags: {', '.join(sorted(chosen - FLAGS))}")
    if added.difference(CATEGORIES):
        raise ValueError(f"{name}: no such categories: {', '.join(sorted(added.difference(CATEGORIES)))}")
    if group not in GROUPS:
        raise ValueError(f"{name}: no such group: {group}")
    name = name.upper()
    key_flags = key_flags or ("RW update" if "write" in chosen else "RO access")
    pair = (key_flags, key_flags) if isinstance(key_flags, str) else key_flags

    def declare(function: Function) -> Function:
        if name in COMMANDS:
            raise ValueError(f"{name} is declared already")
        COMMANDS[name] = Command(
            name, arity, chosen, keys, group, summary, since, function, find_keys, explicit,
            added, channels, pair,
        )  # fmt: skip
        return function

    return declare


def find(argv: list[bytes]) -> Command | None:
    """Returns the command that these arguments name: the subcommand if there is one."""
    try:
        name = argv[0].decode("ascii").upper()
    except UnicodeDecodeError:
        return None
    if len(argv) > 1:
        whole = COMMANDS.get(f"{name} {argv[1].decode('latin-1').upper()}")
        if whole is not None:
            return whole
    return COMMANDS.get(name)
