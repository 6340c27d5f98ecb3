"""Sets: members, random members, and operations on several sets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from verbena.kv.commands.arguments import (
    INT64_MAX,
    NOT_POSITIVE,
    count_within,
    integer_within,
    numkeys_at,
)
from verbena.kv.commands.data import scan_cursors
from verbena.kv.commands.data.hashes import random_choice
from verbena.kv.commands.data.members import remove_members
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import Set

KEY = (1, 1, 1)
EVERY = (1, -1, 1)


@command("SADD", arity=-3, flags="write denyoom fast", keys=KEY, group="set", key_flags="RW insert",
         summary="Adds members to a set and returns how many are new.")  # fmt: skip
def sadd(call: Call, key: bytes, *members: bytes) -> Reply:
    add = call.db.obtain(key, Set).add
    added = sum(add(member) for member in members)
    if added:
        call.db.changed(key, event="sadd")
    return added


@command("SREM", arity=-3, flags="write fast", keys=KEY, group="set", key_flags="RM delete",
         summary="Removes members from a set and returns how many existed.")  # fmt: skip
def srem(call: Call, key: bytes, *members: bytes) -> Reply:
    return remove_members(call, key, Set, members, event="srem")


@command("SMEMBERS", arity=2, flags="readonly", keys=KEY, group="set",
         summary="Returns all members of a set.")  # fmt: skip
def smembers(call: Call, key: bytes) -> Reply:
    return frozenset(call.db.get(key, Set) or ())


@command("SISMEMBER", arity=3, flags="readonly fast", keys=KEY, group="set",
         summary="Returns whether a value is a member of a set.")  # fmt: skip
def sismember(call: Call, key: bytes, member: bytes) -> Reply:
    return int(member in (call.db.get(key, Set) or ()))


@command("SMISMEMBER", arity=-3, flags="readonly fast", keys=KEY, group="set", since="6.2.0",
         summary="Returns whether each of several values is a member of a set.")  # fmt: skip
def smismember(call: Call, key: bytes, *members: bytes) -> Reply:
    value = call.db.get(key, Set) or ()
    return [int(member in value) for member in members]


@command("SCARD", arity=2, flags="readonly fast", keys=KEY, group="set", key_flags="RO",
         summary="Returns the number of members of a set.")  # fmt: skip
def scard(call: Call, key: bytes) -> Reply:
    return len(call.db.get(key, Set) or ())


@command("SPOP", arity=-2, flags="write fast", keys=KEY, group="set", explicit=True,
         key_flags="RW access delete",
         summary="Removes and returns one or more random members of a set.")  # fmt: skip
def spop(call: Call, key: bytes, *args: bytes) -> Reply:
    if len(args) > 1:
        raise InvalidSyntax()
    count = integer_within(args[0], 0, NOT_POSITIVE) if args else 1
    value = call.db.get(key, Set)
    if value is None or count == 0:
        return frozenset() if args else None
    if count >= len(value):
        taken = list(value)
        call.db.delete(key)
        call.db.changed(key, b"DEL", key, event="spop")
    else:
        taken = [value.random_member()] if count == 1 else random.sample(list(value), count)
        for member in taken:
            value.discard(member)
        call.db.changed(key, b"SREM", key, *taken, event="spop")
    return frozenset(taken) if args else taken[0]


@command("SRANDMEMBER", arity=-2, flags="readonly", keys=KEY, group="set",
         summary="Returns one or more random members of a set.")  # fmt: skip
def srandmember(call: Call, key: bytes, *args: bytes) -> Reply:
    if len(args) > 1:
        raise InvalidSyntax()
    count = count_within(args[0], INT64_MAX) if args else 1
    value = call.db.get(key, Set)
    if value is None or count == 0:
        return [] if args else None
    if not args:
        return value.random_member()
    if -16 <= count < 0:
        return [value.random_member() for _ in range(-count)]
    return random_choice(list(value), count)


@command("SMOVE", arity=4, flags="write fast", keys=(1, 2, 1), group="set", explicit=True,
         key_flags=("RW access delete", "RW insert"),
         summary="Moves a member from one set to another.")  # fmt: skip
def smove(call: Call, source: bytes, target: bytes, member: bytes) -> Reply:
    value = call.db.get(source, Set)
    if value is None:
        return 0
    call.db.get(target, Set)
    if source == target:
        return int(member in value)
    if not value.discard(member):
        return 0
    call.db.changed(source, b"SREM", source, member, event="srem")
    if call.db.obtain(target, Set).add(member):
        call.db.changed(target, b"SADD", target, member, event="sadd")
    return 1


def _intersection(call: Call, keys: Sequence[bytes]) -> set[bytes]:
    values = [call.db.get(key, Set) for key in keys]
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        return set()
    there.sort(key=len)
    result = set(there[0])
    for value in there[1:]:
        result &= value.keys()
    return result


def _union(call: Call, keys: Sequence[bytes]) -> set[bytes]:
    return set().union(*[call.db.get(key, Set) or () for key in keys])


def _difference(call: Call, keys: Sequence[bytes]) -> set[bytes]:
    values = [call.db.get(key, Set) or () for key in keys]
    return set(values[0]).difference(*values[1:])


def _store(call: Call, target: bytes, members: set[bytes], event: str) -> int:
    if members:
        call.db.put(target, Set(members))
        call.db.changed(target, event=event)
    elif call.db.delete(target):
        call.db.changed(target, b"DEL", target, event="del")
    return len(members)


@command("SINTERCARD", arity=-3, flags="readonly movablekeys", group="set", since="7.0.0",
         find_keys=numkeys_at(1),
         summary="Returns the size of the intersection of sets, up to a limit.")  # fmt: skip
def sintercard(call: Call, numkeys: bytes, *args: bytes) -> Reply:
    count = integer_within(numkeys, 1, "ERR numkeys should be greater than 0")
    if count > len(args):
        raise CommandError("ERR Number of keys can't be greater than number of args")
    limit = 0
    rest = args[count:]
    for position in range(0, len(rest), 2):
        if rest[position].upper() != b"LIMIT" or position + 1 == len(rest):
            raise InvalidSyntax()
        limit = integer_within(rest[position + 1], 0, "ERR LIMIT can't be negative")
    found = len(_intersection(call, args[:count]))
    return min(found, limit) if limit else found


def _declare(name: str, combine: Callable[[Call, Sequence[bytes]], set[bytes]], result: str) -> None:
    """Declares an operation on sets, which returns its result, and the form that stores it."""

    @command(name, arity=-2, flags="readonly", keys=EVERY, group="set", summary=f"Returns the {result}.")
    def operation(call: Call, *keys: bytes) -> Reply:
        return frozenset(combine(call, keys))

    @command(f"{name}STORE", arity=-3, flags="write denyoom", keys=EVERY, group="set", explicit=True,
             key_flags=("OW update", "RO access"), summary=f"Stores the {result}.")  # fmt: skip
    def operation_store(call: Call, target: bytes, *keys: bytes) -> Reply:
        return _store(call, target, combine(call, keys), f"{name.lower()}store")


_declare("SINTER", _intersection, "intersection of sets")
_declare("SUNION", _union, "union of sets")
_declare("SDIFF", _difference, "difference of the first set and the other sets")


@command("SSCAN", arity=-3, flags="readonly", keys=KEY, group="set", since="2.8.0",
         summary="Iterates over the members of a set.")  # fmt: skip
def sscan(call: Call, key: bytes, cursor: bytes, *args: bytes) -> Reply:
    return scan_cursors.scan(call, key, Set, cursor, args, lambda _, member: (member,))
