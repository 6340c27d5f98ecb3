"""Generates docs/reference/commands.md from the declarations of the commands."""

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
    "geo": "Geospatial indexes",
    "stream": "Streams",
    "pubsub": "Publish and subscribe",
    "transactions": "Transactions",
    "connection": "Connections",
    "server": "Server",
    "scripting": "Scripts",
    "cluster": "Cluster",
    "extension": "Extensions",
}

# Commands of redis-server 7.0 that Verbena does not implement, by reason. A name includes its subcommands.
# The page omits names that are declared.
ABSENT: Mapping[str, tuple[str, ...]] = {
    "streams are not implemented": (
        "XACK", "XADD", "XAUTOCLAIM", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE",
        "XREAD", "XREADGROUP", "XREVRANGE", "XSETID", "XTRIM",
    ),
    "no scripting: declare a Python function as a command instead": (
        "EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO", "FUNCTION", "SCRIPT", "MODULE",
    ),
    "Redis's cluster protocol is not implemented": (
        "ASKING", "CLUSTER", "READONLY", "READWRITE", "RESTORE-ASKING", "MIGRATE",
    ),
    "Redis's replication protocol is not implemented": (
        "FAILOVER", "PSYNC", "REPLCONF", "REPLICAOF", "SLAVEOF", "SYNC", "WAIT",
    ),
    "for developers of Redis": ("DEBUG", "PFDEBUG", "PFSELFTEST"),
}  # fmt: skip

# Flags that matter to the author of a client.
SHOWN_FLAGS = ("write", "readonly", "denyoom", "blocking", "admin", "no_multi", "loading", "no_auth")

HEAD = """\
# Commands

Written by `make docs` from the declarations in `src/verbena/kv/commands`; do not edit.

`arguments` counts the command's name; `3+` means three or more. `keys` gives the positions of the keys: first
to last (`-1` is the last argument), the step in parentheses if it is not 1; *computed* means that they depend
on the other arguments. **Native** commands run in C++ without Python's lock; the others are Python
functions. `flags` are Redis's flags that matter to a client: `denyoom` commands are refused when maxmemory is
reached, `no_multi` commands inside MULTI; `loading` commands are allowed while the data is loaded, `no_auth`
commands before AUTH.
"""


def page() -> str:
    """Returns the page. Call commands.load() first."""
    parts = [HEAD]
    for group in GROUPS:
        rows = sorted((one for one in COMMANDS.values() if one.group == group), key=lambda one: one.name)
        if rows:
            parts += [f"## {TITLES[group]}\n", _table(rows)]
    return "\n".join([*parts, _differences()])


def _table(rows: list[Command]) -> str:
    lines = ["| command | arguments | keys | flags | runs in | summary |", "|---|---|---|---|---|---|"]
    for row in rows:
        count = str(row.arity) if row.arity > 0 else f"{-row.arity}+"
        flags = " ".join(flag for flag in SHOWN_FLAGS if flag in row.flags)
        where = "**native**" if row.function is None else "Python"
        summary = row.summary.replace("|", "\\|")
        lines.append(f"| {row.name} | {count} | {_keys(row)} | {flags} | {where} | {summary} |")
    return "\n".join(lines) + "\n"


def _keys(row: Command) -> str:
    if row.find_keys is not None:
        return "*computed*"
    first, last, step = row.keys
    if first == 0:
        return ""
    span = str(first) if first == last else f"{first} to {last}"
    return span if step == 1 else f"{span} ({step})"


def is_absent(name: str) -> bool:
    """Returns whether the page lists a command, such as "CLUSTER SLOTS", as not implemented."""
    names = {known for group in ABSENT.values() for known in group}
    return name in names or name.partition(" ")[0] in names


def _differences() -> str:
    lines = ["## Not implemented\n\nredis-server 7.0 also has:\n"]
    declared = {name for one in COMMANDS for name in (one, one.partition(" ")[0])}
    for why, names in ABSENT.items():
        missing = [name for name in names if name not in declared]
        if missing:
            lines.append(f"- {', '.join(missing)}: {why}")
    lines.append(
        "\nHow the other commands differ from Redis: [guide](../guide/store.md#what-differs-from-redis)."
    )
    return "\n".join(lines) + "\n"
