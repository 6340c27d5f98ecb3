"""Lists: moves from one list to another, pops from several lists, and the blocking forms of both."""

from __future__ import annotations

from verbena.kv.commands.arguments import numkeys_at, timeout_seconds
from verbena.kv.commands.data.lists import take
from verbena.kv.commands.data.pops import Pop, parse_mpop, pop_first, pop_or_block
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NULL_ARRAY, InvalidSyntax, Reply, WrongType
from verbena.kv.server.call import Call
from verbena.kv.values.collections import List

SIDES = {b"LEFT": True, b"RIGHT": False}


def is_left(arg: bytes) -> bool:
    side = SIDES.get(arg.upper())
    if side is None:
        raise InvalidSyntax()
    return side


def _move(call: Call, source: bytes, target: bytes, from_left: bool, to_left: bool) -> bytes | None:
    """Moves one element; None: the source does not exist. Checks the target's type before it pops."""
    value = call.db.get(source, List)
    if value is None:
        return None
    call.db.get(target, List)
    element = value.popleft() if from_left else value.pop()
    goal = value if source == target else call.db.obtain(target, List)
    (goal.appendleft if to_left else goal.append)(element)
    pop, push = (b"LPOP" if from_left else b"RPOP"), (b"LPUSH" if to_left else b"RPUSH")
    # The push is logged first: a log cut between the two records has the element twice, not zero times.
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


def _pop(left: bool, count: int) -> Pop[list[bytes]]:
    name = b"LPOP" if left else b"RPOP"

    def pop(call: Call, key: bytes) -> list[bytes] | None:
        value = call.db.get(key, List)
        if value is None:
            return None
        taken = take(value, count, left=left)
        call.db.changed(key, name, key, b"%d" % len(taken), event=name.decode().lower())
        return taken

    return pop


def _one(key: bytes, taken: list[bytes]) -> Reply:
    return [key, taken[0]]


def _several(key: bytes, taken: list[bytes]) -> Reply:
    return [key, taken]


@command("BLPOP", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         explicit=True, key_flags="RW access delete",
         summary="Pops the first element of the first non-empty list; blocks until one exists.")  # fmt: skip
def blpop(call: Call, *args: bytes) -> Reply:
    return pop_or_block(call, list(args[:-1]), args[-1], _pop(True, 1), _one)


@command("BRPOP", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         explicit=True, key_flags="RW access delete",
         summary="Pops the last element of the first non-empty list; blocks until one exists.")  # fmt: skip
def brpop(call: Call, *args: bytes) -> Reply:
    return pop_or_block(call, list(args[:-1]), args[-1], _pop(False, 1), _one)


@command("LMPOP", arity=-4, flags="write movablekeys", group="list", since="7.0.0", find_keys=numkeys_at(1),
         explicit=True, key_flags="RW access delete",
         summary="Pops elements from the first non-empty list.")  # fmt: skip
def lmpop(call: Call, *args: bytes) -> Reply:
    keys, left, count = parse_mpop(args, SIDES)
    return pop_first(call, keys, _pop(left, count), _several)


@command("BLMPOP", arity=-5, flags="write blocking movablekeys", group="list", since="7.0.0",
         find_keys=numkeys_at(2), explicit=True, key_flags="RW access delete",
         summary="Pops elements from the first non-empty list; blocks until there is one.")  # fmt: skip
def blmpop(call: Call, timeout: bytes, *args: bytes) -> Reply:
    keys, left, count = parse_mpop(args, SIDES)
    return pop_or_block(call, keys, timeout, _pop(left, count), _several)
