"""Sorted sets: pops of the lowest or highest scores, with or without blocking."""

from __future__ import annotations

from verbena.kv.commands.arguments import NOT_POSITIVE, integer_within, numkeys_at
from verbena.kv.commands.data.pops import Pop, parse_mpop, pop_first, pop_or_block
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import InvalidSyntax, Pairs, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import SortedSet

ENDS = {b"MIN": True, b"MAX": False}
Taken = list[tuple[bytes, float]]


def _take(value: SortedSet, count: int, *, lowest: bool) -> Taken:
    taken: Taken = []
    for _ in range(min(count, len(value))):
        score, member = value.pop(0 if lowest else -1)
        taken.append((member, score))
    return taken


def _pop(call: Call, name: str, key: bytes, args: tuple[bytes, ...], *, lowest: bool) -> Reply:
    if len(args) > 1:
        raise InvalidSyntax()
    count = integer_within(args[0], 0, NOT_POSITIVE) if args else 1
    value = call.db.get(key, SortedSet)
    if value is None or count == 0:
        return []
    taken = _take(value, count, lowest=lowest)
    call.db.changed(key, event=name)
    return Pairs(taken) if args else list(taken[0])


@command("ZPOPMIN", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted_set", since="5.0.0",
         key_flags="RW access delete",
         summary="Removes and returns the members with the lowest scores of a sorted set.")  # fmt: skip
def zpopmin(call: Call, key: bytes, *args: bytes) -> Reply:
    return _pop(call, "zpopmin", key, args, lowest=True)


@command("ZPOPMAX", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted_set", since="5.0.0",
         key_flags="RW access delete",
         summary="Removes and returns the members with the highest scores of a sorted set.")  # fmt: skip
def zpopmax(call: Call, key: bytes, *args: bytes) -> Reply:
    return _pop(call, "zpopmax", key, args, lowest=False)


def _pop_key(lowest: bool, count: int) -> Pop[Taken]:
    name = b"ZPOPMIN" if lowest else b"ZPOPMAX"

    def pop(call: Call, key: bytes) -> Taken | None:
        value = call.db.get(key, SortedSet)
        if value is None:
            return None
        taken = _take(value, count, lowest=lowest)
        call.db.changed(key, name, key, b"%d" % len(taken), event=name.decode().lower())
        return taken

    return pop


def _one(key: bytes, taken: Taken) -> Reply:
    return [key, *taken[0]]


def _several(key: bytes, taken: Taken) -> Reply:
    return [key, [list(pair) for pair in taken]]


@command("BZPOPMIN", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted_set",
         since="5.0.0", explicit=True, key_flags="RW access delete",
         summary="Pops the member with the lowest score; blocks until a sorted set has one.")  # fmt: skip
def bzpopmin(call: Call, *args: bytes) -> Reply:
    return pop_or_block(call, list(args[:-1]), args[-1], _pop_key(True, 1), _one)


@command("BZPOPMAX", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted_set",
         since="5.0.0", explicit=True, key_flags="RW access delete",
         summary="Pops the member with the highest score; blocks until a sorted set has one.")  # fmt: skip
def bzpopmax(call: Call, *args: bytes) -> Reply:
    return pop_or_block(call, list(args[:-1]), args[-1], _pop_key(False, 1), _one)


@command("ZMPOP", arity=-4, flags="write movablekeys", group="sorted_set", since="7.0.0",
         find_keys=numkeys_at(1), explicit=True, key_flags="RW access delete",
         summary="Pops members with the lowest or highest scores from the first non-empty set.")  # fmt: skip
def zmpop(call: Call, *args: bytes) -> Reply:
    keys, lowest, count = parse_mpop(args, ENDS)
    return pop_first(call, keys, _pop_key(lowest, count), _several)


@command("BZMPOP", arity=-5, flags="write blocking movablekeys", group="sorted_set", since="7.0.0",
         find_keys=numkeys_at(2), explicit=True, key_flags="RW access delete",
         summary="Pops members from the first non-empty sorted set; blocks until there is one.")  # fmt: skip
def bzmpop(call: Call, timeout: bytes, *args: bytes) -> Reply:
    keys, lowest, count = parse_mpop(args, ENDS)
    return pop_or_block(call, keys, timeout, _pop_key(lowest, count), _several)
