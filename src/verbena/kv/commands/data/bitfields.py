"""BITFIELD: integers of any width at any bit offset of a string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verbena.kv.commands.arguments import as_integer, integer
from verbena.kv.commands.data.bitmaps import bit_offset
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call

KEY = (1, 1, 1)


class _Step(NamedTuple):
    name: bytes  # GET, SET or INCRBY
    signed: bool
    width: int
    offset: int
    operand: int
    overflow: bytes


def _kind(arg: bytes) -> tuple[bool, int]:
    width = as_integer(arg[1:])
    signed = arg[:1] == b"i"
    if arg[:1] not in (b"i", b"u") or width is None or not 1 <= width <= (64 if signed else 63):
        raise CommandError(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
        )
    return signed, width


def _steps(args: Sequence[bytes], *, only_read: bool) -> list[_Step]:
    steps: list[_Step] = []
    overflow = b"WRAP"
    position = 0
    while position < len(args):
        name, left = args[position].upper(), len(args) - position - 1
        if name == b"OVERFLOW" and left >= 1:
            overflow = args[position + 1].upper()
            if overflow not in (b"WRAP", b"SAT", b"FAIL"):
                raise CommandError("ERR Invalid OVERFLOW type specified")
            position += 2
            continue
        if not ((name == b"GET" and left >= 2) or (name in (b"SET", b"INCRBY") and left >= 3)):
            raise InvalidSyntax()
        signed, width = _kind(args[position + 1])
        offset = bit_offset(args[position + 2], width)
        operand = 0
        if name != b"GET":
            operand = integer(args[position + 3])
        steps.append(_Step(name, signed, width, offset, operand, overflow))
        position += 3 if name == b"GET" else 4
    if only_read and any(step.name != b"GET" for step in steps):
        raise CommandError("ERR BITFIELD_RO only supports the GET subcommand")
    return steps


def _get(text: bytes | bytearray, step: _Step) -> int:
    first, end = step.offset >> 3, (step.offset + step.width + 7) >> 3
    window = int.from_bytes(bytes(text[first:end]).ljust(end - first, b"\0"), "big")
    number = window >> (end * 8 - step.offset - step.width) & ((1 << step.width) - 1)
    return number - (1 << step.width) if step.signed and number >> (step.width - 1) else number


def _put(text: bytearray, step: _Step, number: int) -> None:
    first, end = step.offset >> 3, (step.offset + step.width + 7) >> 3
    if end > len(text):
        text.extend(bytes(end - len(text)))
    shift = end * 8 - step.offset - step.width
    mask = ((1 << step.width) - 1) << shift
    window = int.from_bytes(text[first:end], "big") & ~mask | (number << shift & mask)
    text[first:end] = window.to_bytes(end - first, "big")


def _fitted(number: int, step: _Step) -> int | None:
    """Returns the number as it fits the field, by the OVERFLOW mode; None if it does not fit and FAIL is
    set."""
    least = -(1 << (step.width - 1)) if step.signed else 0
    most = least + (1 << step.width) - 1
    if least <= number <= most:
        return number
    if step.overflow == b"FAIL":
        return None
    if step.overflow == b"SAT":
        return most if number > most else least
    wrapped = number & ((1 << step.width) - 1)
    return wrapped - (1 << step.width) if step.signed and wrapped > most else wrapped


def _run(call: Call, key: bytes, args: Sequence[bytes], *, only_read: bool) -> Reply:
    steps = _steps(args, only_read=only_read)
    old = call.db.string(key)
    text = bytearray(old or b"")
    writes = [step for step in steps if step.name != b"GET"]
    if writes:
        end = max((step.offset + step.width + 7) >> 3 for step in writes)
        text.extend(bytes(max(end - len(text), 0)))
    replies: list[int | None] = []
    changed = False
    for step in steps:
        before = _get(text, step)
        if step.name == b"GET":
            replies.append(before)
            continue
        # SET of an unsigned field takes the operand as 64 unsigned bits, so -1 is the maximum.
        wanted = before + step.operand if step.name == b"INCRBY" else step.operand
        if step.name == b"SET" and not step.signed:
            wanted &= (1 << 64) - 1
        after = _fitted(wanted, step)
        if after is None:
            replies.append(None)
            continue
        _put(text, step, after)
        changed = True
        replies.append(after if step.name == b"INCRBY" else before)
    if changed or (writes and len(text) != len(old or b"")):
        call.db.put(key, bytes(text), keep_expiry=True)
        call.db.changed(key, event="setbit")
    return replies


@command("BITFIELD", arity=-2, flags="write denyoom", keys=KEY, group="bitmap", since="3.2.0",
         key_flags="RW access update",
         summary="Reads and writes integers of any width in a string.")  # fmt: skip
def bitfield(call: Call, key: bytes, *args: bytes) -> Reply:
    return _run(call, key, args, only_read=False)


@command("BITFIELD_RO", arity=-2, flags="readonly fast", keys=KEY, group="bitmap", since="6.0.0",
         summary="Reads integers of any width in a string.")  # fmt: skip
def bitfield_ro(call: Call, key: bytes, *args: bytes) -> Reply:
    return _run(call, key, args, only_read=True)
