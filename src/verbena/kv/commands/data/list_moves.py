"""Lists: elements that go from one list to another, and pops that wait for an element."""

from __future__ import annotations

from collections.abc import Sequence

from verbena.kv.commands.arguments import integer_within, key_count, numkeys_at, timeout_seconds
from verbena.kv.commands.data.lists import take
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NULL_ARRAY, Reply, SyntaxMistake, WrongType
from verbena.kv.server.call import Call
from verbena.kv.values.collections import List

SIDES = {b"LEFT": True, b"RIGHT": False}


def is_left(word: bytes) -> bool:
    side = SIDES.get(word.upper())
    if side is None:
        raise SyntaxMistake()
    return side


def _move(call: Call, source: bytes, target: bytes, from_left: bool, to_left: bool) -> bytes | None:
    """Moves one element; None: there is none. The target's type is looked at before anything moves."""
    value = call.db.get(source, List)
    if value is None:
        return None
    call.db.get(target, List)
    element = value.popleft() if from_left else value.pop()
    goal = value if source == target else call.db.obtain(target, List)
    (goal.appendleft if to_left else goal.append)(element)
    pop, push = (b"LPOP" if from_left else b"RPOP"), (b"LPUSH" if to_left else b"RPUSH")
    # The push is told first: a log that is cut between the two has the element twice rather than never.
    call.db.changed(target, push, target, element, event=push.decode().lower())
    call.db.changed(source, pop, source, event=pop.decode().lower())
    return element


@command("LMOVE", arity=5, flags="write denyoom", keys=(1, 2, 1), group="list", since="6.2.0",
         explicit=True, key_flags=("RW access delete", "RW insert"),
         summary="Moves an element from an end of a list to an end of another list.")  # fmt: skip
def lmove(call: Call, source: bytes, target: bytes, where: bytes, to: bytes) -> Reply:
    return _move(call, source, target, is_left(where), is_left(to))


@command("RPOPLPUSH", arity=3, flags="write denyoom", keys=(1, 2, 1), group="list", since="1.2.0",
         explicit=True, key_flags=("RW access delete", "RW insert"),
         summary="Moves the last element of a list to the front of another list.")  # fmt: skip
def rpoplpush(call: Call, source: bytes, target: bytes) -> Reply:
    return _move(call, source, target, False, True)


def _blocking_move(
    call: Call, source: bytes, target: bytes, from_left: bool, to_left: bool, timeout: bytes
) -> Reply:
    timeout_s = timeout_seconds(timeout)
    moved = _move(call, source, target, from_left, to_left)
    if moved is not None:
        return moved

    def retry(later: Call) -> Reply | None:
        try:
            later.db.get(source, List)
        except WrongType:
            return None
        return _move(later, source, target, from_left, to_left)

    return call.block([source], retry, timeout_s, NULL_ARRAY)


@command("BLMOVE", arity=6, flags="write denyoom noscript blocking", keys=(1, 2, 1), group="list",
         since="6.2.0", explicit=True, key_flags=("RW access delete", "RW insert"),
         summary="Moves an element from one list to another; blocks until there is one.")  # fmt: skip
def blmove(call: Call, source: bytes, target: bytes, where: bytes, to: bytes, timeout: bytes) -> Reply:
    return _blocking_move(call, source, target, is_left(where), is_left(to), timeout)


@command("BRPOPLPUSH", arity=4, flags="write denyoom noscript blocking", keys=(1, 2, 1), group="list",
         since="2.2.0", explicit=True, key_flags=("RW access delete", "RW insert"),
         summary="Moves the last element of a list to the front of another; blocks if empty.")  # fmt: skip
def brpoplpush(call: Call, source: bytes, target: bytes, timeout: bytes) -> Reply:
    return _blocking_move(call, source, target, False, True, timeout)


def _pop_first(call: Call, keys: Sequence[bytes], left: bool, count: int) -> tuple[bytes, list[bytes]] | None:
    """Pops from the first list that is there; says from which."""
    for key in keys:
        value = call.db.get(key, List)
        if value is not None:
            taken = take(value, count, left=left)
            name = b"LPOP" if left else b"RPOP"
            call.db.changed(key, name, key, b"%d" % len(taken), event=name.decode().lower())
            return key, taken
    return None


def _pop_later(call: Call, keys: Sequence[bytes], left: bool, count: int) -> tuple[bytes, list[bytes]] | None:
    """The same for who waits: a key that has become something else is passed over."""
    for key in keys:
        try:
            found = _pop_first(call, (key,), left, count)
        except WrongType:
            continue
        if found is not None:
            return found
    return None


def _blocking_pop(call: Call, words: Sequence[bytes], left: bool) -> Reply:
    keys = list(words[:-1])
    timeout_s = timeout_seconds(words[-1])
    found = _pop_first(call, keys, left, 1)
    if found is not None:
        return [found[0], found[1][0]]

    def retry(later: Call) -> Reply | None:
        found = _pop_later(later, keys, left, 1)
        return None if found is None else [found[0], found[1][0]]

    return call.block(keys, retry, timeout_s, NULL_ARRAY)


@command("BLPOP", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         explicit=True, key_flags="RW access delete",
         summary="Pops the first element of the first non-empty list; blocks until one exists.")  # fmt: skip
def blpop(call: Call, *words: bytes) -> Reply:
    return _blocking_pop(call, words, True)


@command("BRPOP", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         explicit=True, key_flags="RW access delete",
         summary="Pops the last element of the first non-empty list; blocks until one exists.")  # fmt: skip
def brpop(call: Call, *words: bytes) -> Reply:
    return _blocking_pop(call, words, False)


def _mpop_words(words: Sequence[bytes]) -> tuple[list[bytes], bool, int]:
    count_of_keys = key_count(words[0], words[1:], "ERR numkeys should be greater than 0")
    keys, rest = list(words[1 : count_of_keys + 1]), words[count_of_keys + 1 :]
    if not rest:
        raise SyntaxMistake()
    left = is_left(rest[0])
    return keys, left, mpop_count(rest[1:])


def mpop_count(words: Sequence[bytes]) -> int:
    """COUNT of LMPOP and ZMPOP, once at most."""
    if not words:
        return 1
    if words[0].upper() != b"COUNT" or len(words) < 2:
        raise SyntaxMistake()
    count = integer_within(words[1], 1, "ERR count should be greater than 0")
    if len(words) > 2:
        raise SyntaxMistake()
    return count


@command("LMPOP", arity=-4, flags="write movablekeys", group="list", since="7.0.0", find_keys=numkeys_at(1),
         explicit=True, key_flags="RW access delete",
         summary="Pops elements from the first non-empty list.")  # fmt: skip
def lmpop(call: Call, *words: bytes) -> Reply:
    found = _pop_first(call, *_mpop_words(words))
    return NULL_ARRAY if found is None else list(found)


@command("BLMPOP", arity=-5, flags="write blocking movablekeys", group="list", since="7.0.0",
         find_keys=numkeys_at(2), explicit=True, key_flags="RW access delete",
         summary="Pops elements from the first non-empty list; blocks until there is one.")  # fmt: skip
def blmpop(call: Call, timeout: bytes, *words: bytes) -> Reply:
    keys, left, count = _mpop_words(words)
    timeout_s = timeout_seconds(timeout)
    found = _pop_first(call, keys, left, count)
    if found is not None:
        return list(found)

    def retry(later: Call) -> Reply | None:
        found = _pop_later(later, keys, left, count)
        return None if found is None else list(found)

    return call.block(keys, retry, timeout_s, NULL_ARRAY)
