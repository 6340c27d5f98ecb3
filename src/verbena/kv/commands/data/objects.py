"""OBJECT: encoding, idle time and frequency of a value. Verbena stores values differently, but reports the
encoding that Redis would use, since programs depend on it."""

from __future__ import annotations

from collections.abc import Iterable

from verbena.kv.commands.arguments import as_integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import Hash, List, Set, Value

KEY = (2, 2, 1)
_SWITCHING = (
    "Please note that when switching between policies at runtime"
    " LRU and LFU data will take some time to adjust."
)


def _small(args: Iterable[bytes]) -> bool:
    return all(len(arg) <= 64 for arg in args)


def encoding(value: Value | bytes) -> bytes:
    """Returns the encoding that Redis with default settings would choose for this value."""
    if isinstance(value, bytes):
        if as_integer(value) is not None:
            return b"int"
        return b"embstr" if len(value) <= 44 else b"raw"
    if isinstance(value, List):
        return b"quicklist"
    few = len(value) <= 128
    if isinstance(value, Hash):
        return b"listpack" if few and _small(value) and _small(value.values()) else b"hashtable"
    if isinstance(value, Set):
        whole = len(value) <= 512 and all(as_integer(member) is not None for member in value)
        return b"intset" if whole else b"hashtable"
    return b"listpack" if few and _small(value.scores) else b"skiplist"


@command("OBJECT", arity=-2, group="generic", since="2.2.3",
         summary="Container of commands that inspect a value.")  # fmt: skip
def object_(call: Call, name: bytes, *args: bytes) -> Reply:
    raise CommandError(f"ERR unknown subcommand '{name[:128].decode('utf-8', 'replace')}'. Try OBJECT HELP.")


@command("OBJECT ENCODING", arity=3, flags="readonly", keys=KEY, group="generic", since="2.2.3",
         summary="Returns the encoding that Redis would choose for a value.")  # fmt: skip
def object_encoding(call: Call, key: bytes) -> Reply:
    value = call.db.any(key)
    return None if value is None else encoding(value)


@command("OBJECT REFCOUNT", arity=3, flags="readonly", keys=KEY, group="generic", since="2.2.3",
         summary="Returns the reference count of a value, which is always 1.")  # fmt: skip
def object_refcount(call: Call, key: bytes) -> Reply:
    return 1 if call.db.exists(key) else None


@command("OBJECT IDLETIME", arity=3, flags="readonly", keys=KEY, group="generic", since="2.2.3",
         summary="Returns the seconds since a key was last accessed.")  # fmt: skip
def object_idletime(call: Call, key: bytes) -> Reply:
    details = call.db.details(key)
    if details is None:
        return None
    if call.counts_frequency:
        raise CommandError(f"ERR An LFU maxmemory policy is selected, idle time not tracked. {_SWITCHING}")
    return details[2]


@command("OBJECT FREQ", arity=3, flags="readonly", keys=KEY, group="generic", since="4.0.0",
         summary="Returns the logarithmic access frequency counter of a key.")  # fmt: skip
def object_freq(call: Call, key: bytes) -> Reply:
    details = call.db.details(key)
    if details is None:
        return None
    if not call.counts_frequency:
        raise CommandError(
            f"ERR An LFU maxmemory policy is not selected, access frequency not tracked. {_SWITCHING}"
        )
    return details[3]


@command("OBJECT HELP", arity=2, flags="loading stale", group="generic", since="6.2.0",
         summary="Returns help for the OBJECT subcommands.")  # fmt: skip
def object_help(call: Call) -> Reply:
    return [
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
        "HELP",
        "    Prints this help.",
    ]
