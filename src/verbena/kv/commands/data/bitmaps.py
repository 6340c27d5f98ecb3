"""Bitmaps: strings as sequences of bits. Bit 0 is the most significant bit of the first byte."""

from __future__ import annotations

from collections.abc import Sequence

from verbena.kv.commands.arguments import as_integer, integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call

KEY = (1, 1, 1)
MAX_BITS = 512 * 1024 * 1024 * 8  # of the largest string


def bit_offset(arg: bytes, width: int = 0) -> int:
    """Parses a bit offset; with a `width`, "#3" means 3 * width. CommandError if it is not in a string."""
    counted = width > 0 and arg[:1] == b"#"
    offset = as_integer(arg[1:] if counted else arg)
    if offset is not None and counted:
        offset *= width
    if offset is None or not 0 <= offset < MAX_BITS:
        raise CommandError("ERR bit offset is not an integer or out of range")
    return offset


@command("SETBIT", arity=4, flags="write denyoom", keys=KEY, group="bitmap", since="2.2.0",
         key_flags="RW access update",
         summary="Sets or clears the bit of a string at an offset and returns the old bit.")  # fmt: skip
def setbit(call: Call, key: bytes, offset: bytes, bit: bytes) -> Reply:
    position = bit_offset(offset)
    if bit not in (b"0", b"1"):
        raise CommandError("ERR bit is not an integer or out of range")
    text = bytearray(call.db.string(key) or b"")
    place, mask = position >> 3, 0x80 >> (position & 7)
    if place >= len(text):
        text.extend(bytes(place + 1 - len(text)))
    old = bool(text[place] & mask)
    text[place] = text[place] | mask if bit == b"1" else text[place] & ~mask
    call.db.put(key, bytes(text), keep_expiry=True)
    call.db.changed(key, event="setbit")
    return int(old)


@command("GETBIT", arity=3, flags="readonly fast", keys=KEY, group="bitmap", since="2.2.0",
         summary="Returns the bit of a string at an offset.")  # fmt: skip
def getbit(call: Call, key: bytes, offset: bytes) -> Reply:
    position = bit_offset(offset)
    text = call.db.string(key) or b""
    return text[position >> 3] >> (7 - (position & 7)) & 1 if position >> 3 < len(text) else 0


def _bounds(args: Sequence[bytes], length: int) -> tuple[int, int]:
    """Returns the first and last bit of a range in bytes or, with BIT, bits. If it is empty, the last is
    before the first."""
    first = integer(args[0]) if args else 0
    last = integer(args[1]) if len(args) > 1 else -1
    unit = args[2].upper() if len(args) > 2 else b"BYTE"
    if unit not in (b"BIT", b"BYTE"):
        raise InvalidSyntax()
    in_bits = unit == b"BIT"
    total = length * 8 if in_bits else length
    first = max(first + total, 0) if first < 0 else first
    last = max(last + total, 0) if last < 0 else last
    last = min(last, total - 1)
    return (first, last) if in_bits else (first * 8, last * 8 + 7)


def _part(text: bytes, first: int, last: int) -> tuple[int, int]:
    """Returns the bits of a range as one number, and their count."""
    number = int.from_bytes(text[first >> 3 : (last >> 3) + 1], "big") >> (7 - (last & 7))
    width = last - first + 1
    return number & ((1 << width) - 1), width


@command("BITCOUNT", arity=-2, flags="readonly", keys=KEY, group="bitmap", since="2.6.0",
         summary="Counts the set bits of a string, or of a range of it.")  # fmt: skip
def bitcount(call: Call, key: bytes, *args: bytes) -> Reply:
    text = call.db.string(key)
    if text is None:
        return 0
    if len(args) == 1 or len(args) > 3:
        raise InvalidSyntax()
    if args and 0 > integer(args[0]) > integer(args[1]):
        return 0
    first, last = _bounds(args, len(text))
    return _part(text, first, last)[0].bit_count() if first <= last else 0


@command("BITPOS", arity=-3, flags="readonly", keys=KEY, group="bitmap", since="2.8.7",
         summary="Returns the position of the first set or clear bit of a string.")  # fmt: skip
def bitpos(call: Call, key: bytes, bit: bytes, *args: bytes) -> Reply:
    wanted = integer(bit)
    if wanted not in (0, 1):
        raise CommandError("ERR The bit argument must be 1 or 0.")
    text = call.db.string(key)
    if text is None:
        return -1 if wanted else 0
    if len(args) > 3:
        raise InvalidSyntax()
    first, last = _bounds(args, len(text))
    if first > last:
        return -1
    number, width = _part(text, first, last)
    if not wanted:
        number ^= (1 << width) - 1
    if number:
        return first + width - number.bit_length()
    # Without an end position, the string counts as followed by clear bits.
    return last + 1 if not wanted and len(args) < 2 else -1


@command("BITOP", arity=-4, flags="write denyoom", keys=(2, -1, 1), group="bitmap", since="2.6.0",
         explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the bitwise AND, OR, XOR or NOT of strings.")  # fmt: skip
def bitop(call: Call, operation: bytes, target: bytes, *keys: bytes) -> Reply:
    name = operation.upper()
    if name not in (b"AND", b"OR", b"XOR", b"NOT"):
        raise InvalidSyntax()
    if name == b"NOT" and len(keys) != 1:
        raise CommandError("ERR BITOP NOT must be called with a single source key.")
    texts = [call.db.string(key) or b"" for key in keys]
    length = max(map(len, texts))
    if length == 0:
        if call.db.delete(target):
            call.db.changed(target, b"DEL", target, event="del")
        return 0
    numbers = [int.from_bytes(text.ljust(length, b"\0"), "little") for text in texts]
    result = numbers[0]
    for number in numbers[1:]:
        result = result & number if name == b"AND" else result | number if name == b"OR" else result ^ number
    if name == b"NOT":
        result ^= (1 << (8 * length)) - 1
    call.db.put(target, result.to_bytes(length, "little"))
    call.db.changed(target, event="set")
    return length
