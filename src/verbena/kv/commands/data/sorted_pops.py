"""Sorted sets: members taken from either end, now or as soon as there is one."""

from __future__ import annotations

from collections.abc import Sequence

from verbena.kv.commands.arguments import (
    NOT_POSITIVE,
    integer_within,
    key_count,
    numkeys_at,
    timeout_seconds,
)
from verbena.kv.commands.data.list_moves import mpop_count
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NULL_ARRAY, Pairs, Reply, SyntaxMistake, WrongType
from verbena.kv.server.call import Call
from verbena.kv.values.collections import SortedSet

Taken = list[tuple[bytes, float]]


def _take(value: SortedSet, count: int, *, lowest: bool) -> Taken:
    taken: Taken = []
    for _ in range(min(count, len(value))):
        score, member = value.pop(0 if lowest else -1)
        taken.append((member, score))
    return taken


def _pop(call: Call, name: str, key: bytes, words: tuple[bytes, ...], *, lowest: bool) -> Reply:
    if len(words) > 1:
        raise SyntaxMistake()
    count = integer_within(words[0], 0, NOT_POSITIVE) if words else 1
    value = call.db.get(key, SortedSet)
    if value is None or count == 0:
        return []
    taken = _take(value, count, lowest=lowest)
    call.db.changed(key, event=name)
    return Pairs(taken) if words else list(taken[0])


@command("ZPOPMIN", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted_set", since="5.0.0",
         key_flags="RW access delete",
         summary="Removes and returns the members with the lowest scores of a sorted set.")  # fmt: skip
def zpopmin(call: Call, key: bytes, *words: bytes) -> Reply:
    return _pop(call, "zpopmin", key, words, lowest=True)


@command("ZPOPMAX", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted_set", since="5.0.0",
         key_flags="RW access delete",
         summary="Removes and returns the members with the highest scores of a sorted set.")  # fmt: skip
def zpopmax(call: Call, key: bytes, *words: bytes) -> Reply:
    return _pop(call, "zpopmax", key, words, lowest=False)


def _pop_first(call: Call, keys: Sequence[bytes], lowest: bool, count: int) -> tuple[bytes, Taken] | None:
    """Pops from the first sorted set that is there; says from which."""
    for key in keys:
        value = call.db.get(key, SortedSet)
        if value is not None:
            taken = _take(value, count, lowest=lowest)
            name = b"ZPOPMIN" if lowest else b"ZPOPMAX"
            call.db.changed(key, name, key, b"%d" % len(taken), event=name.decode().lower())
            return key, taken
    return None


def _pop_later(call: Call, keys: Sequence[bytes], lowest: bool, count: int) -> tuple[bytes, Taken] | None:
    """The same for who waits: a key that has become something else is passed over."""
    for key in keys:
        try:
            found = _pop_first(call, (key,), lowest, count)
        except WrongType:
            continue
        if found is not None:
            return found
    return None


def _blocking_pop(call: Call, words: Sequence[bytes], lowest: bool) -> Reply:
    keys = list(words[:-1])
    timeout_s = timeout_seconds(words[-1])
    found = _pop_first(call, keys, lowest, 1)
    if found is not None:
        return [found[0], *found[1][0]]

    def retry(later: Call) -> Reply | None:
        found = _pop_later(later, keys, lowest, 1)
        return None if found is None else [found[0], *found[1][0]]

    return call.block(keys, retry, timeout_s, NULL_ARRAY)


@command("BZPOPMIN", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted_set",
         since="5.0.0", explicit=True, key_flags="RW access delete",
         summary="Pops the member with the lowest score; blocks until a sorted set has one.")  # fmt: skip
def bzpopmin(call: Call, *words: bytes) -> Reply:
    return _blocking_pop(call, words, True)


@command("BZPOPMAX", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted_set",
         since="5.0.0", explicit=True, key_flags="RW access delete",
         summary="Pops the member with the highest score; blocks until a sorted set has one.")  # fmt: skip
def bzpopmax(call: Call, *words: bytes) -> Reply:
    return _blocking_pop(call, words, False)


def _mpop_words(words: Sequence[bytes]) -> tuple[list[bytes], bool, int]:
    count_of_keys = key_count(words[0], words[1:], "ERR numkeys should be greater than 0")
    keys, rest = list(words[1 : count_of_keys + 1]), words[count_of_keys + 1 :]
    if not rest or rest[0].upper() not in (b"MIN", b"MAX"):
        raise SyntaxMistake()
    return keys, rest[0].upper() == b"MIN", mpop_count(rest[1:])


def _answer(found: tuple[bytes, Taken]) -> Reply:
    return [found[0], [list(pair) for pair in found[1]]]


@command("ZMPOP", arity=-4, flags="write movablekeys", group="sorted_set", since="7.0.0",
         find_keys=numkeys_at(1), explicit=True, key_flags="RW access delete",
         summary="Pops members with the lowest or highest scores from the first non-empty set.")  # fmt: skip
def zmpop(call: Call, *words: bytes) -> Reply:
    found = _pop_first(call, *_mpop_words(words))
    return NULL_ARRAY if found is None else _answer(found)


@command("BZMPOP", arity=-5, flags="write blocking movablekeys", group="sorted_set", since="7.0.0",
         find_keys=numkeys_at(2), explicit=True, key_flags="RW access delete",
         summary="Pops members from the first non-empty sorted set; blocks until there is one.")  # fmt: skip
def bzmpop(call: Call, timeout: bytes, *words: bytes) -> Reply:
    keys, lowest, count = _mpop_words(words)
    timeout_s = timeout_seconds(timeout)
    found = _pop_first(call, keys, lowest, count)
    if found is not None:
        return _answer(found)

    def retry(later: Call) -> Reply | None:
        found = _pop_later(later, keys, lowest, count)
        return None if found is None else _answer(found)

    return call.block(keys, retry, timeout_s, NULL_ARRAY)
