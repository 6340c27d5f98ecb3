"""Sorted sets: single members and their scores. Ranges are in sorted_set_ranges.py; unions, intersections and
differences in sorted_set_operations.py; pops in sorted_set_pops.py."""

from __future__ import annotations

import math
import random

from verbena.kv.commands.arguments import INT64_MAX, count_within, floating, format_double
from verbena.kv.commands.data import scan_cursors
from verbena.kv.commands.data.hashes import count_of_pairs, repetitions
from verbena.kv.commands.data.members import remove_members
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Pairs, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import SortedSet

KEY = (1, 1, 1)
_FLAGS = frozenset((b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"))


@command("ZADD", arity=-4, flags="write denyoom fast", keys=KEY, group="sorted_set", since="1.2.0",
         summary="Adds members to a sorted set or updates their scores.")  # fmt: skip
def zadd(call: Call, key: bytes, *args: bytes) -> Reply:
    flags: set[bytes] = set()
    start = 0
    while start < len(args) and args[start].upper() in _FLAGS:
        flags.add(args[start].upper())
        start += 1
    pairs = args[start:]
    if len(pairs) % 2 or not pairs:
        raise InvalidSyntax()
    _check_zadd(flags, len(pairs) // 2)
    scores = [floating(arg) for arg in pairs[::2]]
    value = call.db.get(key, SortedSet)
    increment = b"INCR" in flags
    if value is None and b"XX" in flags:
        return None if increment else 0
    target = value if value is not None else SortedSet()
    added = updated = 0
    result: float | None = None
    for score, member in zip(scores, pairs[1::2], strict=True):
        old = target.scores.get(member)
        new = score
        if (old is None and b"XX" in flags) or (old is not None and b"NX" in flags):
            continue
        if old is not None:
            if increment:
                new = _sum(old, score)
            if (b"GT" in flags and new <= old) or (b"LT" in flags and new >= old):
                continue
        result = new
        added += old is None
        updated += old is not None and old != new
        target.put(member, new)
    if added or updated:
        if value is None:
            call.db.put(key, target)
        call.db.changed(key, event="zincr" if increment else "zadd")
    if increment:
        return result
    return added + updated if b"CH" in flags else added


def _check_zadd(flags: set[bytes], pairs: int) -> None:
    if {b"NX", b"XX"} <= flags:
        raise CommandError("ERR XX and NX options at the same time are not compatible")
    if len(flags & {b"NX", b"GT", b"LT"}) > 1:
        raise CommandError("ERR GT, LT, and/or NX options at the same time are not compatible")
    if b"INCR" in flags and pairs > 1:
        raise CommandError("ERR INCR option supports a single increment-element pair")


def _sum(old: float, step: float) -> float:
    total = old + step
    if math.isnan(total):
        raise CommandError("ERR resulting score is not a number (NaN)")
    return total


@command("ZINCRBY", arity=4, flags="write denyoom fast", keys=KEY, group="sorted_set", since="1.2.0",
         key_flags="RW access update",
         summary="Adds a number to the score of a member of a sorted set.")  # fmt: skip
def zincrby(call: Call, key: bytes, increment: bytes, member: bytes) -> Reply:
    step = floating(increment)
    value = call.db.get(key, SortedSet)
    old = None if value is None else value.scores.get(member)
    total = step if old is None else _sum(old, step)
    if old is None or total != old:
        call.db.obtain(key, SortedSet).put(member, total)
        call.db.changed(key, event="zincr")
    return total


@command("ZREM", arity=-3, flags="write fast", keys=KEY, group="sorted_set", since="1.2.0",
         key_flags="RM delete",
         summary="Removes members from a sorted set and returns how many existed.")  # fmt: skip
def zrem(call: Call, key: bytes, *members: bytes) -> Reply:
    return remove_members(call, key, SortedSet, members, event="zrem")


@command("ZCARD", arity=2, flags="readonly fast", keys=KEY, group="sorted_set", since="1.2.0",
         key_flags="RO",
         summary="Returns the number of members of a sorted set.")  # fmt: skip
def zcard(call: Call, key: bytes) -> Reply:
    return len(call.db.get(key, SortedSet) or ())


@command("ZSCORE", arity=3, flags="readonly fast", keys=KEY, group="sorted_set", since="1.2.0",
         summary="Returns the score of a member of a sorted set.")  # fmt: skip
def zscore(call: Call, key: bytes, member: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    return None if value is None else value.scores.get(member)


@command("ZMSCORE", arity=-3, flags="readonly fast", keys=KEY, group="sorted_set", since="6.2.0",
         summary="Returns the scores of one or more members of a sorted set.")  # fmt: skip
def zmscore(call: Call, key: bytes, *members: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    return [None] * len(members) if value is None else [value.scores.get(member) for member in members]


@command("ZRANK", arity=3, flags="readonly fast", keys=KEY, group="sorted_set", since="2.0.0",
         summary="Returns the rank of a member of a sorted set, by ascending score.")  # fmt: skip
def zrank(call: Call, key: bytes, member: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    return None if value is None else value.rank(member)


@command("ZREVRANK", arity=3, flags="readonly fast", keys=KEY, group="sorted_set", since="2.0.0",
         summary="Returns the rank of a member of a sorted set, by descending score.")  # fmt: skip
def zrevrank(call: Call, key: bytes, member: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    place = None if value is None else value.rank(member)
    return None if value is None or place is None else len(value) - 1 - place


@command("ZRANDMEMBER", arity=-2, flags="readonly", keys=KEY, group="sorted_set", since="6.2.0",
         summary="Returns one or more random members of a sorted set.")  # fmt: skip
def zrandmember(call: Call, key: bytes, *args: bytes) -> Reply:
    if not args:
        value = call.db.get(key, SortedSet)
        return None if value is None else value.order[random.randrange(len(value))][1]
    count = count_within(args[0], INT64_MAX)
    if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"WITHSCORES"):
        raise InvalidSyntax()
    if len(args) == 2:
        count_of_pairs(count)
    value = call.db.get(key, SortedSet)
    if value is None or count == 0:
        return []
    if count < 0:
        chosen = [value.order[random.randrange(len(value))] for _ in range(repetitions(count))]
    elif count >= len(value):
        chosen = list(value.order)
    else:
        chosen = [value.order[place] for place in random.sample(range(len(value)), count)]
    if len(args) == 1:
        return [member for _, member in chosen]
    return Pairs([(member, score) for score, member in chosen])


@command("ZSCAN", arity=-3, flags="readonly", keys=KEY, group="sorted_set", since="2.8.0",
         summary="Iterates over the members and scores of a sorted set.")  # fmt: skip
def zscan(call: Call, key: bytes, cursor: bytes, *args: bytes) -> Reply:
    def pair(value: SortedSet, member: bytes) -> tuple[bytes, bytes]:
        return member, format_double(value.scores[member])

    return scan_cursors.scan(call, key, SortedSet, cursor, args, pair)
