"""COMMAND: describes the commands, from their declarations."""

from __future__ import annotations

from typing import Any

from verbena.kv.acl.categories import categories_of
from verbena.kv.commands.arguments import display
from verbena.kv.commands.declare import CATEGORIES, COMMANDS, Command, command, find
from verbena.kv.commands.key_access import keys_of
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.glob import matches

INTROSPECTION = "loading stale"
# Flags of commands with subcommands; most have none. In redis-server DEBUG is a single command with flags.
_CONTAINERS = {"DEBUG": frozenset(["admin", "noscript", "loading", "stale"])}


def containers() -> set[str]:
    return {name.partition(" ")[0] for name in COMMANDS if " " in name}


def top_level() -> list[str]:
    return sorted({name.partition(" ")[0] for name in COMMANDS})


def subcommands(name: str) -> list[Command]:
    return [found for known, found in sorted(COMMANDS.items()) if known.startswith(f"{name} ")]


def describe(name: str) -> list[Any] | None:
    """Returns a row of COMMAND INFO; None if there is no such command."""
    name = name.upper().replace("|", " ")
    found = COMMANDS.get(name)
    inner = subcommands(name)
    if found is None and not inner:
        return None
    row = found or Command(name, -2, _CONTAINERS.get(name, frozenset()), (0, 0, 0), inner[0].group, "")
    flags = set(row.flags) | ({"movablekeys"} if row.find_keys is not None else set())
    first, last, step = row.keys if row.keys[0] else row.channels
    return [
        name.lower().replace(" ", "|").encode(),
        row.arity,
        sorted(flags),
        first,
        last,
        step,
        [f"@{category}" for category in CATEGORIES if category in categories_of(row)],
        [],
        _key_specs(row),
        [describe(one.name) for one in inner],
    ]


def _key_specs(row: Command) -> list[Any]:
    if row.find_keys is not None:
        unknown = {b"type": b"unknown", b"spec": {}}
        return [{b"flags": ["RW" if row.is_write else "RO"], b"begin_search": unknown, b"find_keys": unknown}]
    first, last, step = row.keys if row.keys[0] else row.channels
    if not first:
        return []
    flags: tuple[str, ...] = ("not_key",)
    if row.keys[0]:
        (_, flags), *_ = keys_of(row, [b""] * max(first + 1, abs(row.arity), 3))
    return [
        {
            b"flags": list(flags),
            b"begin_search": {b"type": b"index", b"spec": {b"index": first}},
            b"find_keys": {
                b"type": b"range",
                b"spec": {b"lastkey": last - first if last > 0 else last, b"keystep": step, b"limit": 0},
            },
        }
    ]


@command(
    "COMMAND",
    arity=-1,
    flags=INTROSPECTION,
    group="server",
    summary="Returns details about all commands.",
    since="2.8.13",
)
def command_(call: Call, *args: bytes) -> Reply:
    if args:
        raise CommandError(f"ERR unknown subcommand '{display(args[0][:128])}'. Try COMMAND HELP.")
    return [describe(name) for name in top_level()]


@command(
    "COMMAND COUNT",
    arity=2,
    flags=INTROSPECTION,
    group="server",
    summary="Returns the number of commands.",
    since="2.8.13",
)
def count(call: Call) -> Reply:
    return len(top_level())


@command(
    "COMMAND INFO",
    arity=-2,
    flags=INTROSPECTION,
    group="server",
    summary="Returns details about one or more commands.",
    since="2.8.13",
)
def info(call: Call, *names: bytes) -> Reply:
    return [describe(display(name)) for name in names] if names else [describe(name) for name in top_level()]


@command(
    "COMMAND DOCS",
    arity=-2,
    flags=INTROSPECTION,
    group="server",
    summary="Returns the documentation of commands.",
    since="7.0.0",
)
def docs(call: Call, *names: bytes) -> Reply:
    wanted = [display(name).upper().replace("|", " ") for name in names] or top_level()
    return {
        name.lower().replace(" ", "|").encode(): _doc(name)
        for name in wanted
        if name in COMMANDS or subcommands(name)
    }


def _doc(name: str) -> dict[bytes, Any]:
    inner = subcommands(name)
    found = COMMANDS.get(name)
    row = found or inner[0]
    doc: dict[bytes, Any] = {
        b"summary": (found.summary if found else f"A container of {name.lower()}'s subcommands.").encode(),
        b"since": row.since.encode(),
        b"group": row.group.replace("_", "-").encode(),
    }
    if inner:
        doc[b"subcommands"] = {one.name.lower().replace(" ", "|").encode(): _doc(one.name) for one in inner}
    return doc


@command(
    "COMMAND LIST",
    arity=-2,
    flags=INTROSPECTION,
    group="server",
    summary="Lists the names of commands.",
    since="7.0.0",
)
def list_(call: Call, *args: bytes) -> Reply:
    names = sorted(set(COMMANDS) | containers())
    if args:
        if len(args) != 3 or args[0].upper() != b"FILTERBY":
            raise InvalidSyntax()
        how, value = args[1].upper(), args[2]
        if how == b"ACLCAT":
            category = display(value).lower()
            names = [name for name in names if name in COMMANDS and category in categories_of(COMMANDS[name])]
        elif how == b"PATTERN":
            names = [
                name for name in names if matches(value.lower(), name.lower().replace(" ", "|").encode())
            ]
        elif how == b"MODULE":
            names = []
        else:
            raise InvalidSyntax()
    return [name.lower().replace(" ", "|").encode() for name in names]


def _keys(args: tuple[bytes, ...]) -> list[tuple[bytes, tuple[str, ...]]]:
    argv = list(args)
    found = find(argv)
    if found is None:
        raise CommandError("ERR Invalid command specified")
    if (found.arity > 0 and len(argv) != found.arity) or len(argv) < -found.arity:
        raise CommandError("ERR Invalid number of arguments specified for command")
    if not found.keys[0] and found.find_keys is None:
        raise CommandError("ERR The command has no key arguments")
    keys = keys_of(found, argv)
    if not keys:
        raise CommandError("ERR Invalid arguments specified for command")
    return [(argv[at], flags) for at, flags in keys]


@command(
    "COMMAND GETKEYS",
    arity=-3,
    flags=INTROSPECTION,
    group="server",
    summary="Returns the keys of a given command line.",
    since="2.8.13",
)
def getkeys(call: Call, *args: bytes) -> Reply:
    return [key for key, _ in _keys(args)]


@command(
    "COMMAND GETKEYSANDFLAGS",
    arity=-3,
    flags=INTROSPECTION,
    group="server",
    summary="Returns the keys of a given command line with their access flags.",
    since="7.0.0",
)
def getkeysandflags(call: Call, *args: bytes) -> Reply:
    return [[key, list(flags)] for key, flags in _keys(args)]
