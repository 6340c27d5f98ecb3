"""A value as bytes: for DUMP and RESTORE, snapshots and the log.

    type  count  width  lengths of all items  scores (sorted sets)  the items  │  version  CRC-32

All lengths come first, each `width` bytes wide, so that packing takes few calls for any count. Numbers are
little-endian. The CRC detects damage; further checks reject forged payloads."""

from __future__ import annotations

import math
import struct
import zlib
from itertools import accumulate, pairwise

from verbena.kv.values.collections import Hash, List, Set, SortedSet, Value

VERSION = 1
_HEAD = struct.Struct("<BIB")
_TAIL = struct.Struct("<BI")
_STRING, _HASH, _LIST, _SET, _ZSET = range(5)
_CODES: dict[type, int] = {bytes: _STRING, Hash: _HASH, List: _LIST, Set: _SET, SortedSet: _ZSET}
_WIDTHS = {1: "B", 2: "H", 4: "I"}


class Damaged(ValueError):
    """The checksum or the version is wrong."""


class Malformed(ValueError):
    """The checksum is right, but the content is not a value."""


def dump(value: Value | bytes) -> bytes:
    scores = b""
    if isinstance(value, bytes):
        items = [value]
    elif isinstance(value, Hash):
        items = [item for pair in value.items() for item in pair]
    elif isinstance(value, SortedSet):
        items = [member for _, member in value.order]
        scores = struct.pack(f"<{len(items)}d", *[score for score, _ in value.order])
    else:
        items = list(value)
    lengths = [len(item) for item in items]
    longest = max(lengths, default=0)
    width = 1 if longest < 1 << 8 else 2 if longest < 1 << 16 else 4
    packed = struct.pack(f"<{len(items)}{_WIDTHS[width]}", *lengths)
    head = _HEAD.pack(_CODES[type(value)], len(items), width)
    body = b"".join((head, packed, scores, *items))
    return body + _TAIL.pack(VERSION, zlib.crc32(bytes((VERSION,)), zlib.crc32(body)))


def load(payload: bytes) -> Value | bytes:
    """Returns the value of a payload. Damaged or Malformed: it is not one."""
    body = payload[: -_TAIL.size]
    if len(payload) < _HEAD.size + _TAIL.size:
        raise Damaged("too short")
    version, crc = _TAIL.unpack_from(payload, len(body))
    if version != VERSION or crc != zlib.crc32(bytes((version,)), zlib.crc32(body)):
        raise Damaged("version or checksum")
    code, count, width = _HEAD.unpack_from(body)
    position = _HEAD.size
    if width not in _WIDTHS or count * width > len(body) - position or count == 0:
        raise Malformed("lengths")
    lengths = struct.unpack_from(f"<{count}{_WIDTHS[width]}", body, position)
    position += count * width
    scores: tuple[float, ...] = ()
    if code == _ZSET:
        if count * 8 > len(body) - position:
            raise Malformed("scores")
        scores = struct.unpack_from(f"<{count}d", body, position)
        position += count * 8
    ends = list(accumulate(lengths, initial=position))
    if ends[-1] != len(body):
        raise Malformed("items")
    return _made(code, [body[start:end] for start, end in pairwise(ends)], scores)


def _made(code: int, items: list[bytes], scores: tuple[float, ...]) -> Value | bytes:
    made: Value
    expected = len(items)
    if code == _STRING and expected == 1:
        return items[0]
    if code == _HASH and expected % 2 == 0:
        made, expected = Hash(zip(items[::2], items[1::2], strict=True)), expected // 2
    elif code == _LIST:
        made = List(items)
    elif code == _SET:
        made = Set(items)
    elif code == _ZSET and not any(map(math.isnan, scores)):
        made = SortedSet.of(dict(zip(items, scores, strict=True)))
    else:
        raise Malformed("type")
    if len(made) != expected:
        raise Malformed("a member twice")
    return made


def duplicate(value: Value | bytes) -> Value | bytes:
    """Returns a copy of a value."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, SortedSet):
        return SortedSet.of(value.scores)
    if isinstance(value, Hash):
        return Hash(value)
    return List(value) if isinstance(value, List) else Set(value)
