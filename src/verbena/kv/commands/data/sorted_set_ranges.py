"""Sorted sets: reads, counts, stores and removes ranges by rank, score or member."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verbena.kv.commands.arguments import LexBound, clamp_range, integer, score_range
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Pairs, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import SortedSet

KEY = (1, 1, 1)


def _score_slice(value: SortedSet, bounds: tuple[float, bool, float, bool]) -> tuple[int, int]:
    least, above, greatest, below = bounds
    start = _first_above(value, least) if above else _first_at(value, least)
    stop = _first_at(value, greatest) if below else _first_above(value, greatest)
    return (start, stop) if start < stop else (0, 0)


def _first_at(value: SortedSet, score: float) -> int:
    alone: Any = (score,)  # sorts before every member with that score
    return int(value.order.bisect_left(alone))


def _first_above(value: SortedSet, score: float) -> int:
    return len(value) if score == math.inf else _first_at(value, math.nextafter(score, math.inf))


def lex_slice(value: SortedSet, low: LexBound, high: LexBound, *, reverse: bool = False) -> tuple[int, int]:
    """Returns the slice of members in a lexicographical range, which requires that all scores are equal. If
    they are not, returns what Redis would: the first run of members in the range, from the end where it
    starts."""
    order = value.order
    if order[0][0] == order[-1][0]:
        score = order[0][0]
        start = 0 if low.infinity < 0 else len(order)
        if low.member is not None:
            start = (order.bisect_right if low.excluded else order.bisect_left)((score, low.member))
        stop = len(order) if high.infinity > 0 else 0
        if high.member is not None:
            stop = (order.bisect_left if high.excluded else order.bisect_right)((score, high.member))
        return (start, stop) if start < stop else (0, 0)
    members = [member for _, member in order]
    if not low.admits_above(members[-1]) or not high.admits_below(members[0]):
        return 0, 0
    if reverse:
        stop = next((i + 1 for i in range(len(members) - 1, -1, -1) if high.admits_below(members[i])), 0)
        start = stop
        while start > 0 and low.admits_above(members[start - 1]):
            start -= 1
    else:
        start = next((i for i, member in enumerate(members) if low.admits_above(member)), len(members))
        stop = start
        while stop < len(members) and high.admits_below(members[stop]):
            stop += 1
    return (start, stop) if start < stop else (0, 0)


@dataclass
class _Range:
    """The options of ZRANGE and its older forms."""

    by: bytes = b"RANK"
    reverse: bool = False
    scores: bool = False
    offset: int = 0
    limit: int = -1


def _options(args: Sequence[bytes], chosen: _Range, allowed: frozenset[bytes]) -> _Range:
    position = 0
    limited = False
    while position < len(args):
        name = args[position].upper()
        if name not in allowed:
            raise InvalidSyntax()
        if name == b"WITHSCORES":
            chosen.scores = True
        elif name == b"LIMIT":
            if position + 2 >= len(args):
                raise InvalidSyntax()
            chosen.offset, chosen.limit = integer(args[position + 1]), integer(args[position + 2])
            limited = True
            position += 2
        elif name == b"REV" and not chosen.reverse:
            chosen.reverse = True
        elif chosen.by == b"RANK" and name != b"REV":
            chosen.by = name[2:]
        else:
            raise InvalidSyntax()
        position += 1
    if limited and chosen.limit != -1 and chosen.by == b"RANK":
        raise CommandError(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
        )
    if chosen.scores and chosen.by == b"LEX":
        raise CommandError("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
    return chosen


def _select(call: Call, key: bytes, first: bytes, last: bytes, chosen: _Range) -> list[tuple[float, bytes]]:
    """Returns the pairs (score, member) of a range in the requested order. Checks the bounds even if the key
    does not exist."""
    low, high = (last, first) if chosen.reverse else (first, last)
    places = scores = args = None
    if chosen.by == b"SCORE":
        scores = score_range(low, high)
    elif chosen.by == b"LEX":
        args = LexBound(low), LexBound(high)
    else:
        places = integer(first), integer(last)
    value = call.db.get(key, SortedSet)
    if value is None:
        return []
    if scores is not None:
        start, stop = _score_slice(value, scores)
    elif args is not None:
        start, stop = lex_slice(value, *args, reverse=chosen.reverse)
    else:
        assert places is not None
        start, stop = clamp_range(*places, len(value))
        if chosen.reverse:
            start, stop = len(value) - stop, len(value) - start
        return list(value.order.islice(start, stop, reverse=chosen.reverse))
    if chosen.offset < 0 or chosen.offset >= stop - start:
        return []
    count = stop - start - chosen.offset
    if chosen.limit >= 0:
        count = min(count, chosen.limit)
    if chosen.reverse:
        stop -= chosen.offset
        start = stop - count
    else:
        start += chosen.offset
        stop = start + count
    return list(value.order.islice(start, stop, reverse=chosen.reverse))


def answer(pairs: Sequence[tuple[float, bytes]], scores: bool) -> Reply:
    if scores:
        return Pairs([(member, score) for score, member in pairs])
    return [member for _, member in pairs]


def _range(call: Call, key: bytes, first: bytes, last: bytes, chosen: _Range) -> Reply:
    return answer(_select(call, key, first, last, chosen), chosen.scores)


_ALL = frozenset((b"WITHSCORES", b"LIMIT", b"REV", b"BYSCORE", b"BYLEX"))
_STORE = _ALL - {b"WITHSCORES"}
_BY_SCORE = frozenset((b"WITHSCORES", b"LIMIT"))
_BY_RANK = frozenset((b"WITHSCORES",))
_BY_LEX = frozenset((b"LIMIT",))


@command("ZRANGE", arity=-4, flags="readonly", keys=KEY, group="sorted_set", since="1.2.0",
         summary="Returns the members of a sorted set in a range of ranks, scores or names.")  # fmt: skip
def zrange(call: Call, key: bytes, first: bytes, last: bytes, *args: bytes) -> Reply:
    return _range(call, key, first, last, _options(args, _Range(), _ALL))


@command("ZRANGESTORE", arity=-5, flags="write denyoom", keys=(1, 2, 1), group="sorted_set", since="6.2.0",
         explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the members of a sorted set in a range as a new sorted set.")  # fmt: skip
def zrangestore(call: Call, target: bytes, key: bytes, first: bytes, last: bytes, *args: bytes) -> Reply:
    pairs = _select(call, key, first, last, _options(args, _Range(), _STORE))
    return store(call, target, {member: score for score, member in pairs}, "zrangestore")


def store(call: Call, target: bytes, scores: dict[bytes, float], event: str) -> int:
    """Replaces the value at `target` by a sorted set of these scores, or deletes it if there are none;
    returns the number of members."""
    if scores:
        call.db.put(target, SortedSet.of(scores))
        call.db.changed(target, event=event)
    elif call.db.delete(target):
        call.db.changed(target, b"DEL", target, event="del")
    return len(scores)


def _declare(
    name: str, since: str, by: bytes, allowed: frozenset[bytes], *, reverse: bool, summary: str
) -> None:
    """Declares an older form of ZRANGE, which has `by` and `reverse` in its name."""

    @command(name, arity=-4, flags="readonly", keys=KEY, group="sorted_set", since=since, summary=summary)
    def range_(call: Call, key: bytes, first: bytes, last: bytes, *args: bytes) -> Reply:
        return _range(call, key, first, last, _options(args, _Range(by=by, reverse=reverse), allowed))


_declare("ZREVRANGE", "1.2.0", b"RANK", _BY_RANK, reverse=True,
         summary="Returns the members of a sorted set in a range of descending ranks.")  # fmt: skip
_declare("ZRANGEBYSCORE", "1.0.5", b"SCORE", _BY_SCORE, reverse=False,
         summary="Returns the members of a sorted set with scores in a range.")  # fmt: skip
_declare("ZREVRANGEBYSCORE", "2.2.0", b"SCORE", _BY_SCORE, reverse=True,
         summary="Returns the members with scores in a range, in descending order.")  # fmt: skip
_declare("ZRANGEBYLEX", "2.8.9", b"LEX", _BY_LEX, reverse=False,
         summary="Returns the members of a sorted set in a lexicographical range.")  # fmt: skip
_declare("ZREVRANGEBYLEX", "2.8.9", b"LEX", _BY_LEX, reverse=True,
         summary="Returns a lexicographical range of a sorted set, in descending order.")  # fmt: skip


def _found(call: Call, key: bytes, by: bytes, low: bytes, high: bytes) -> tuple[SortedSet, int, int] | None:
    bounds: Any = (
        score_range(low, high) if by == b"SCORE"
        else (LexBound(low), LexBound(high)) if by == b"LEX"
        else (integer(low), integer(high))
    )  # fmt: skip
    value = call.db.get(key, SortedSet)
    if value is None:
        return None
    if by == b"SCORE":
        return (value, *_score_slice(value, bounds))
    if by == b"LEX":
        return (value, *lex_slice(value, *bounds))
    first, last = bounds
    return (value, *clamp_range(first, last, len(value)))


def _count(call: Call, key: bytes, by: bytes, low: bytes, high: bytes) -> int:
    found = _found(call, key, by, low, high)
    return 0 if found is None else found[2] - found[1]


def _remove(call: Call, key: bytes, by: bytes, low: bytes, high: bytes, event: str) -> int:
    found = _found(call, key, by, low, high)
    if found is None or found[1] == found[2]:
        return 0
    value, start, stop = found
    value.remove_range(start, stop)
    call.db.changed(key, event=event)
    return stop - start


@command("ZCOUNT", arity=4, flags="readonly fast", keys=KEY, group="sorted_set", since="2.0.0",
         summary="Counts the members of a sorted set with scores in a range.")  # fmt: skip
def zcount(call: Call, key: bytes, low: bytes, high: bytes) -> Reply:
    return _count(call, key, b"SCORE", low, high)


@command("ZLEXCOUNT", arity=4, flags="readonly fast", keys=KEY, group="sorted_set", since="2.8.9",
         summary="Counts the members of a sorted set in a lexicographical range.")  # fmt: skip
def zlexcount(call: Call, key: bytes, low: bytes, high: bytes) -> Reply:
    return _count(call, key, b"LEX", low, high)


@command("ZREMRANGEBYRANK", arity=4, flags="write", keys=KEY, group="sorted_set", since="2.0.0",
         key_flags="RM delete",
         summary="Removes the members of a sorted set in a range of ranks.")  # fmt: skip
def zremrangebyrank(call: Call, key: bytes, first: bytes, last: bytes) -> Reply:
    return _remove(call, key, b"RANK", first, last, "zremrangebyrank")


@command("ZREMRANGEBYSCORE", arity=4, flags="write", keys=KEY, group="sorted_set", since="1.2.0",
         key_flags="RM delete",
         summary="Removes the members of a sorted set with scores in a range.")  # fmt: skip
def zremrangebyscore(call: Call, key: bytes, low: bytes, high: bytes) -> Reply:
    return _remove(call, key, b"SCORE", low, high, "zremrangebyscore")


@command("ZREMRANGEBYLEX", arity=4, flags="write", keys=KEY, group="sorted_set", since="2.8.9",
         key_flags="RM delete",
         summary="Removes the members of a sorted set in a lexicographical range.")  # fmt: skip
def zremrangebylex(call: Call, key: bytes, low: bytes, high: bytes) -> Reply:
    return _remove(call, key, b"LEX", low, high, "zremrangebylex")
