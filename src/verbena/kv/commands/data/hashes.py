"""Hashes: fields and their values."""

from __future__ import annotations

import random
from itertools import islice

from verbena.kv.commands.arguments import (
    INT64_MAX,
    INT64_MIN,
    as_integer,
    count_within,
    integer,
)
from verbena.kv.commands.data import scan_cursors
from verbena.kv.commands.data.members import remove_members
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, NotAFloat, Pairs, Reply
from verbena.kv.server.call import Call
from verbena.kv.values import long_double
from verbena.kv.values.collections import Hash

KEY = (1, 1, 1)
MAX_REPETITIONS = 1 << 24


def _set_fields(call: Call, key: bytes, args: tuple[bytes, ...], name: str) -> int:
    if len(args) % 2:
        raise CommandError(f"ERR wrong number of arguments for '{name}' command")
    value = call.db.obtain(key, Hash)
    before = len(value)
    if len(args) == 2:
        value[args[0]] = args[1]
    else:
        value.update(zip(args[::2], args[1::2], strict=True))
    call.db.changed(key, event="hset")
    return len(value) - before


@command("HSET", arity=-4, flags="write denyoom fast", keys=KEY, group="hash", since="2.0.0",
         summary="Sets one or more fields of a hash and returns how many are new.")  # fmt: skip
def hset(call: Call, key: bytes, *args: bytes) -> Reply:
    return _set_fields(call, key, args, "hset")


@command("HMSET", arity=-4, flags="write denyoom fast", keys=KEY, group="hash", since="2.0.0",
         summary="Sets one or more fields of a hash. Deprecated: use HSET.")  # fmt: skip
def hmset(call: Call, key: bytes, *args: bytes) -> Reply:
    _set_fields(call, key, args, "hmset")
    return "OK"


@command("HSETNX", arity=4, flags="write denyoom fast", keys=KEY, group="hash", since="2.0.0",
         key_flags="RW insert",
         summary="Sets a field of a hash only if the field does not exist.")  # fmt: skip
def hsetnx(call: Call, key: bytes, field: bytes, content: bytes) -> Reply:
    value = call.db.get(key, Hash)
    if value is not None and field in value:
        return 0
    call.db.obtain(key, Hash)[field] = content
    call.db.changed(key, event="hset")
    return 1


@command("HGET", arity=3, flags="readonly fast", keys=KEY, group="hash", since="2.0.0",
         summary="Returns the value of a field of a hash.")  # fmt: skip
def hget(call: Call, key: bytes, field: bytes) -> Reply:
    value = call.db.get(key, Hash)
    return None if value is None else value.get(field)


@command("HMGET", arity=-3, flags="readonly fast", keys=KEY, group="hash", since="2.0.0",
         summary="Returns the values of one or more fields of a hash.")  # fmt: skip
def hmget(call: Call, key: bytes, *fields: bytes) -> Reply:
    value = call.db.get(key, Hash)
    return [None] * len(fields) if value is None else [value.get(field) for field in fields]


@command("HGETALL", arity=2, flags="readonly", keys=KEY, group="hash", since="2.0.0",
         summary="Returns all fields and values of a hash.")  # fmt: skip
def hgetall(call: Call, key: bytes) -> Reply:
    value = call.db.get(key, Hash)
    return {} if value is None else dict(value)


@command("HKEYS", arity=2, flags="readonly", keys=KEY, group="hash", since="2.0.0",
         summary="Returns all fields of a hash.")  # fmt: skip
def hkeys(call: Call, key: bytes) -> Reply:
    return list(call.db.get(key, Hash) or ())


@command("HVALS", arity=2, flags="readonly", keys=KEY, group="hash", since="2.0.0",
         summary="Returns all values of a hash.")  # fmt: skip
def hvals(call: Call, key: bytes) -> Reply:
    value = call.db.get(key, Hash)
    return [] if value is None else list(value.values())


@command("HLEN", arity=2, flags="readonly fast", keys=KEY, group="hash", since="2.0.0", key_flags="RO",
         summary="Returns the number of fields of a hash.")  # fmt: skip
def hlen(call: Call, key: bytes) -> Reply:
    return len(call.db.get(key, Hash) or ())


@command("HEXISTS", arity=3, flags="readonly fast", keys=KEY, group="hash", since="2.0.0",
         summary="Returns whether a field of a hash exists.")  # fmt: skip
def hexists(call: Call, key: bytes, field: bytes) -> Reply:
    return int(field in (call.db.get(key, Hash) or ()))


@command("HSTRLEN", arity=3, flags="readonly fast", keys=KEY, group="hash", since="3.2.0",
         summary="Returns the length of the value of a field of a hash, in bytes.")  # fmt: skip
def hstrlen(call: Call, key: bytes, field: bytes) -> Reply:
    value = call.db.get(key, Hash)
    return 0 if value is None else len(value.get(field, b""))


@command("HDEL", arity=-3, flags="write fast", keys=KEY, group="hash", since="2.0.0", key_flags="RM delete",
         summary="Deletes fields of a hash and returns how many existed.")  # fmt: skip
def hdel(call: Call, key: bytes, *fields: bytes) -> Reply:
    return remove_members(call, key, Hash, fields, event="hdel")


@command("HINCRBY", arity=4, flags="write denyoom fast", keys=KEY, group="hash", since="2.0.0",
         key_flags="RW access update",
         summary="Adds a number to the integer in a field of a hash.")  # fmt: skip
def hincrby(call: Call, key: bytes, field: bytes, increment: bytes) -> Reply:
    step = integer(increment)
    value = call.db.get(key, Hash)
    old = as_integer(value.get(field, b"0")) if value is not None else 0
    if old is None:
        raise CommandError("ERR hash value is not an integer")
    if not INT64_MIN <= old + step <= INT64_MAX:
        raise CommandError("ERR increment or decrement would overflow")
    call.db.obtain(key, Hash)[field] = b"%d" % (old + step)
    call.db.changed(key, event="hincrby")
    return old + step


@command("HINCRBYFLOAT", arity=4, flags="write denyoom fast", keys=KEY, group="hash", since="2.6.0",
         explicit=True, key_flags="RW access update",
         summary="Adds a floating-point number to the number in a field of a hash.")  # fmt: skip
def hincrbyfloat(call: Call, key: bytes, field: bytes, increment: bytes) -> Reply:
    try:
        step = long_double.read(increment)
    except long_double.Infinite:
        raise CommandError("ERR value is NaN or Infinity") from None
    if step is None:
        raise NotAFloat()
    value = call.db.get(key, Hash)
    try:
        old = long_double.read(value.get(field, b"0") if value is not None else b"0")
    except long_double.Infinite:
        raise CommandError("ERR increment would produce NaN or Infinity") from None
    if old is None:
        raise CommandError("ERR hash value is not a float")
    total = long_double.rounded(old + step)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    text = long_double.format_number(total)
    call.db.obtain(key, Hash)[field] = text
    call.db.changed(key, b"HSET", key, field, text, event="hincrbyfloat")
    return text


@command("HRANDFIELD", arity=-2, flags="readonly", keys=KEY, group="hash", since="6.2.0",
         summary="Returns one or more random fields of a hash.")  # fmt: skip
def hrandfield(call: Call, key: bytes, *args: bytes) -> Reply:
    if not args:
        value = call.db.get(key, Hash)
        return None if value is None else next(islice(value, random.randrange(len(value)), None))
    count = count_within(args[0], INT64_MAX)
    if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"WITHVALUES"):
        raise InvalidSyntax()
    if len(args) == 2:
        count_of_pairs(count)
    value = call.db.get(key, Hash)
    if value is None or count == 0:
        return []
    fields = random_choice(list(value), count)
    return fields if len(args) == 1 else Pairs([(field, value[field]) for field in fields])


def count_of_pairs(count: int) -> None:
    if not -(INT64_MAX // 2) <= count <= INT64_MAX // 2:
        raise CommandError("ERR value is out of range")


def repetitions(count: int) -> int:
    """Returns the absolute value of a negative count. CommandError if it is too large: Redis would try to
    allocate the reply."""
    if -count > MAX_REPETITIONS:
        raise CommandError("ERR value is out of range")
    return -count


def random_choice(members: list[bytes], count: int) -> list[bytes]:
    """Returns up to `count` distinct random members, or exactly -count with repetitions if it is negative."""
    if count < 0:
        return random.choices(members, k=repetitions(count))
    return members if count >= len(members) else random.sample(members, count)


@command("HSCAN", arity=-3, flags="readonly", keys=KEY, group="hash", since="2.8.0",
         summary="Iterates over the fields and values of a hash.")  # fmt: skip
def hscan(call: Call, key: bytes, cursor: bytes, *args: bytes) -> Reply:
    return scan_cursors.scan(call, key, Hash, cursor, args, lambda value, field: (field, value[field]))
