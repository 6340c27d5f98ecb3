"""What a command does with each of its keys: for ACL rules and for COMMAND GETKEYSANDFLAGS."""

from __future__ import annotations

from verbena.kv.commands.declare import Command


def keys_of(command: Command, argv: list[bytes]) -> list[tuple[int, tuple[str, ...]]]:
    """Returns the positions of the keys in `argv`, each with its flags, such as ("RO", "access")."""
    positions = [at for at in command.key_positions(argv) if 0 < at < len(argv)]
    first, others = command.key_flags
    if command.name == "SET" and any(argument.upper() == b"GET" for argument in argv[3:]):
        first = "RW access update"
    return [(at, tuple((others if i else first).split())) for i, at in enumerate(positions)]


def needs(flags: tuple[str, ...]) -> str:
    """Returns the right that an ACL rule must grant for such a key: "R", "W", "RW", or "" for any."""
    return ("R" if "access" in flags else "") + ("W" if {"insert", "delete", "update"} & set(flags) else "")
