"""The categories of commands for ACL rules, derived from the declarations of the commands."""

from __future__ import annotations

import functools

from verbena.kv.commands.declare import CATEGORIES, COMMANDS, Command

_BY_GROUP = {
    "generic": "keyspace",
    "sorted_set": "sortedset",
    "transactions": "transaction",
    **{name: name for name in CATEGORIES},
}


def categories_of(command: Command) -> frozenset[str]:
    """Returns the categories of a command, without the @."""
    found = set(command.categories)
    flags = command.flags
    if "write" in flags:
        found.add("write")
    if "readonly" in flags:
        found.add("read")
    if "admin" in flags:
        found |= {"admin", "dangerous"}
    for same in ("pubsub", "fast", "blocking"):
        if same in flags:
            found.add(same)
    if "fast" not in flags:
        found.add("slow")
    if command.group in _BY_GROUP:
        found.add(_BY_GROUP[command.group])
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _members(category: str, count: int) -> frozenset[str]:
    return frozenset(name for name, command in COMMANDS.items() if category in categories_of(command))


def members(category: str) -> frozenset[str]:
    """Returns the commands of a category, subcommands by their whole names."""
    return _members(category, len(COMMANDS))
