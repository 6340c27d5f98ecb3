"""Lists: pushes, pops, positions. Moves and blocking commands are in list_moves.py."""

from __future__ import annotations

from verbena.kv.commands.arguments import (
    INT64_MAX,
    INT64_MIN,
    NOT_POSITIVE,
    clamp_range,
    integer,
    integer_within,
)
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NULL_ARRAY, CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import List

KEY = (1, 1, 1)


def _push(
    call: Call, key: bytes, elements: tuple[bytes, ...], *, left: bool, only_if_there: bool = False
) -> int:
    if only_if_there and call.db.get(key, List) is None:
        return 0
    value = call.db.obtain(key, List)
    (value.extendleft if left else value.extend)(elements)
    call.db.changed(key, event="lpush" if left else "rpush")
    return len(value)


@command("LPUSH", arity=-3, flags="write denyoom fast", keys=KEY, group="list", key_flags="RW insert",
         summary="Prepends elements to a list, creating it if needed.")  # fmt: skip
def lpush(call: Call, key: bytes, *elements: bytes) -> Reply:
    return _push(call, key, elements, left=True)


@command("RPUSH", arity=-3, flags="write denyoom fast", keys=KEY, group="list", key_flags="RW insert",
         summary="Appends elements to a list, creating it if needed.")  # fmt: skip
def rpush(call: Call, key: bytes, *elements: bytes) -> Reply:
    return _push(call, key, elements, left=False)


@command("LPUSHX", arity=-3, flags="write denyoom fast", keys=KEY, group="list", since="2.2.0",
         key_flags="RW insert",
         summary="Prepends elements to a list only if it exists.")  # fmt: skip
def lpushx(call: Call, key: bytes, *elements: bytes) -> Reply:
    return _push(call, key, elements, left=True, only_if_there=True)


@command("RPUSHX", arity=-3, flags="write denyoom fast", keys=KEY, group="list", since="2.2.0",
         key_flags="RW insert",
         summary="Appends elements to a list only if it exists.")  # fmt: skip
def rpushx(call: Call, key: bytes, *elements: bytes) -> Reply:
    return _push(call, key, elements, left=False, only_if_there=True)


def take(value: List, count: int, *, left: bool) -> list[bytes]:
    """Pops up to `count` elements from one end."""
    pop = value.popleft if left else value.pop
    return [pop() for _ in range(min(count, len(value)))]


def _pop(call: Call, name: str, key: bytes, args: tuple[bytes, ...], *, left: bool) -> Reply:
    if len(args) > 1:
        raise CommandError(f"ERR wrong number of arguments for '{name}' command")
    count = integer_within(args[0], 0, NOT_POSITIVE) if args else 1
    value = call.db.get(key, List)
    if value is None:
        return NULL_ARRAY if args else None
    if count == 0:
        return []
    taken = take(value, count, left=left)
    call.db.changed(key, event=name)
    return taken if args else taken[0]


@command("LPOP", arity=-2, flags="write fast", keys=KEY, group="list", key_flags="RW access delete",
         summary="Removes and returns the first elements of a list.")  # fmt: skip
def lpop(call: Call, key: bytes, *args: bytes) -> Reply:
    return _pop(call, "lpop", key, args, left=True)


@command("RPOP", arity=-2, flags="write fast", keys=KEY, group="list", key_flags="RW access delete",
         summary="Removes and returns the last elements of a list.")  # fmt: skip
def rpop(call: Call, key: bytes, *args: bytes) -> Reply:
    return _pop(call, "rpop", key, args, left=False)


@command("LLEN", arity=2, flags="readonly fast", keys=KEY, group="list", key_flags="RO",
         summary="Returns the length of a list.")  # fmt: skip
def llen(call: Call, key: bytes) -> Reply:
    return len(call.db.get(key, List) or ())


@command("LRANGE", arity=4, flags="readonly", keys=KEY, group="list",
         summary="Returns the elements of a list between two indexes.")  # fmt: skip
def lrange(call: Call, key: bytes, first: bytes, last: bytes) -> Reply:
    start, stop = integer(first), integer(last)
    value = call.db.get(key, List)
    return [] if value is None else value.section(*clamp_range(start, stop, len(value)))


@command("LINDEX", arity=3, flags="readonly", keys=KEY, group="list",
         summary="Returns the element of a list at an index.")  # fmt: skip
def lindex(call: Call, key: bytes, index: bytes) -> Reply:
    value = call.db.get(key, List)
    if value is None:
        return None
    position = integer(index)
    return value[position] if -len(value) <= position < len(value) else None


@command("LSET", arity=4, flags="write denyoom", keys=KEY, group="list",
         summary="Replaces the element of a list at an index.")  # fmt: skip
def lset(call: Call, key: bytes, index: bytes, element: bytes) -> Reply:
    value = call.db.get(key, List)
    if value is None:
        raise CommandError("ERR no such key")
    position = integer(index)
    if not -len(value) <= position < len(value):
        raise CommandError("ERR index out of range")
    value[position] = element
    call.db.changed(key, event="lset")
    return "OK"


@command("LINSERT", arity=5, flags="write denyoom", keys=KEY, group="list", since="2.2.0",
         key_flags="RW insert",
         summary="Inserts an element before or after another element of a list.")  # fmt: skip
def linsert(call: Call, key: bytes, where: bytes, pivot: bytes, element: bytes) -> Reply:
    side = where.upper()
    if side not in (b"BEFORE", b"AFTER"):
        raise InvalidSyntax()
    value = call.db.get(key, List)
    if value is None:
        return 0
    try:
        position = value.index(pivot)
    except ValueError:
        return -1
    value.insert(position + (side == b"AFTER"), element)
    call.db.changed(key, event="linsert")
    return len(value)


@command("LREM", arity=4, flags="write", keys=KEY, group="list", key_flags="RM delete",
         summary="Removes the elements of a list that equal a value.")  # fmt: skip
def lrem(call: Call, key: bytes, count: bytes, element: bytes) -> Reply:
    limit = integer(count)
    value = call.db.get(key, List)
    if value is None:
        return 0
    removed = value.remove(element, limit)
    if removed:
        call.db.changed(key, event="lrem")
    return removed


@command("LTRIM", arity=4, flags="write", keys=KEY, group="list", key_flags="RM delete",
         summary="Removes all elements of a list outside a range of indexes.")  # fmt: skip
def ltrim(call: Call, key: bytes, first: bytes, last: bytes) -> Reply:
    start, stop = integer(first), integer(last)
    value = call.db.get(key, List)
    if value is None:
        return "OK"
    value.trim(*clamp_range(start, stop, len(value)))
    call.db.changed(key, event="ltrim")
    return "OK"


@command("LPOS", arity=-3, flags="readonly", keys=KEY, group="list", since="6.0.6",
         summary="Returns the indexes of matching elements in a list.")  # fmt: skip
def lpos(call: Call, key: bytes, element: bytes, *args: bytes) -> Reply:
    rank, count, most = 1, -1, 0
    for position in range(0, len(args), 2):
        name = args[position].upper()
        if position + 1 == len(args):
            raise InvalidSyntax()
        arg = args[position + 1]
        if name == b"RANK":
            rank = _rank(arg)
        elif name == b"COUNT":
            count = integer_within(arg, 0, "ERR COUNT can't be negative")
        elif name == b"MAXLEN":
            most = integer_within(arg, 0, "ERR MAXLEN can't be negative")
        else:
            raise InvalidSyntax()
    value = call.db.get(key, List)
    if value is None:
        return None if count < 0 else []
    found = value.places(element, rank, 1 if count < 0 else count, most)
    if count < 0:
        return found[0] if found else None
    return found


def _rank(arg: bytes) -> int:
    rank = integer(arg)
    if rank == 0:
        raise CommandError(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ..."
            " or use negative to start from the end of the list"
        )
    if not INT64_MIN < rank <= INT64_MAX:
        raise CommandError(f"ERR value is out of range, value must between {-INT64_MAX} and {INT64_MAX}")
    return rank
