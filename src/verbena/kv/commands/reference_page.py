"""docs/reference/commands.md, from what the commands are declared with."""

from __future__ import annotations

from collections.abc import Mapping

from verbena.kv.commands.declare import COMMANDS, GROUPS, Command

TITLES: Mapping[str, str] = {
    "string": "Strings",
    "generic": "Keys",
    "hash": "Hashes",
    "list": "Lists",
    "set": "Sets",
    "sorted_set": "Sorted sets",
    "bitmap": "Bitmaps",
    "hyperloglog": "HyperLogLogs",
    "geo": "Places",
    "stream": "Streams",
    "pubsub": "Publish and subscribe",
    "transactions": "Transactions",
    "connection": "Connections",
    "server": "The server",
    "scripting": "Scripts",
    "cluster": "Clusters",
    "extension": "Verbena's own",
}

# What redis-server 7.0 has besides, and why it is not here. A name stands for its subcommands, too.
# Whatever gets declared leaves the page by itself.
ABSENT: Mapping[str, tuple[str, ...]] = {
    "no streams": (
        "XACK", "XADD", "XAUTOCLAIM", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE",
        "XREAD", "XREADGROUP", "XREVRANGE", "XSETID", "XTRIM",
    ),
    "no scripts: a command of your own is a Python function": (
        "EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO", "FUNCTION", "SCRIPT", "MODULE",
    ),
    "no cluster of Redis's kind": ("ASKING", "CLUSTER", "READONLY", "READWRITE", "RESTORE-ASKING", "MIGRATE"),
    "no replication of Redis's kind": (
        "FAILOVER", "PSYNC", "REPLCONF", "REPLICAOF", "SLAVEOF", "SYNC", "WAIT",
    ),
    "for Redis's own developers": ("DEBUG", "PFDEBUG", "PFSELFTEST"),
}  # fmt: skip

# Flags that a reader of the page can do something with.
SHOWN_FLAGS = ("write", "readonly", "denyoom", "blocking", "admin", "no_multi", "loading", "no_auth")

HEAD = """\
# Commands

Written by `make docs` from the declarations in `src/verbena/kv/commands`; do not edit.

`words` counts the command's name; `3+` means three or more. `keys` says which words are keys (`-1`: the last
word; in parentheses: every so many; *found*: by looking at the words). **Native** commands are run by C++
without Python's lock; the others are Python functions. `flags` are those of Redis that matter to a client:
`denyoom` is refused when maxmemory is reached, `no_multi` within MULTI, `loading` and `no_auth` are allowed
before the data is read and before AUTH.
"""


def page() -> str:
    """The whole page. The commands must have been loaded."""
    parts = [HEAD]
    for group in GROUPS:
        rows = sorted((one for one in COMMANDS.values() if one.group == group), key=lambda one: one.name)
        if rows:
            parts += [f"## {TITLES[group]}\n", _table(rows)]
    return "\n".join([*parts, _differences()])


def _table(rows: list[Command]) -> str:
    lines = ["| command | words | keys | flags | answered by | |", "|---|---|---|---|---|---|"]
    for row in rows:
        words = str(row.arity) if row.arity > 0 else f"{-row.arity}+"
        flags = " ".join(flag for flag in SHOWN_FLAGS if flag in row.flags)
        where = "**native**" if row.function is None else "Python"
        summary = row.summary.replace("|", "\\|")
        lines.append(f"| {row.name} | {words} | {_keys(row)} | {flags} | {where} | {summary} |")
    return "\n".join(lines) + "\n"


def _keys(row: Command) -> str:
    if row.find_keys is not None:
        return "*found*"
    first, last, step = row.keys
    if first == 0:
        return ""
    span = str(first) if first == last else f"{first} to {last}"
    return span if step == 1 else f"{span} ({step})"


def is_absent(name: str) -> bool:
    """Is it said that there is no such command? `name`: "CLUSTER SLOTS"."""
    names = {known for group in ABSENT.values() for known in group}
    return name in names or name.partition(" ")[0] in names


def _differences() -> str:
    lines = ["## What redis-server 7.0 has besides\n"]
    declared = {name for one in COMMANDS for name in (one, one.partition(" ")[0])}
    for why, names in ABSENT.items():
        missing = [name for name in names if name not in declared]
        if missing:
            lines.append(f"- {', '.join(missing)}: {why}")
    lines.append("\nHow those that are here differ: [guide](../guide/store.md#what-differs-from-redis).")
    return "\n".join(lines) + "\n"
