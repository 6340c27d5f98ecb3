"""A value as bytes: for DUMP and RESTORE, snapshots and the log.

    type  count  width  lengths of all words  scores (sorted sets)  the words  │  version  CRC-32

Lengths stand together, each `width` bytes wide, so that packing is a few calls whatever the count. Numbers
are little-endian. Who damages a payload is caught by the CRC; who forges one, by the checks."""

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
    """The checksum or the version is not right."""


class Malformed(ValueError):
    """The checksum is right but the contents make no value."""


def dump(value: Value | bytes) -> bytes:
    scores = b""
    if isinstance(value, bytes):
        words = [value]
    elif isinstance(value, Hash):
        words = [word for pair in value.items() for word in pair]
    elif isinstance(value, SortedSet):
        words = [member for _, member in value.order]
        scores = struct.pack(f"<{len(words)}d", *[score for score, _ in value.order])
    else:
        words = list(value)
    lengths = [len(word) for word in words]
    longest = max(lengths, default=0)
    width = 1 if longest < 1 << 8 else 2 if longest < 1 << 16 else 4
    packed = struct.pack(f"<{len(words)}{_WIDTHS[width]}", *lengths)
    head = _HEAD.pack(_CODES[type(value)], len(words), width)
    body = b"".join((head, packed, scores, *words))
    return body + _TAIL.pack(VERSION, zlib.crc32(bytes((VERSION,)), zlib.crc32(body)))


def load(payload: bytes) -> Value | bytes:
    """The value again; Damaged or Malformed if it is none."""
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
        raise Malformed("words")
    return _made(code, [body[start:end] for start, end in pairwise(ends)], scores)


def _made(code: int, words: list[bytes], scores: tuple[float, ...]) -> Value | bytes:
    made: Value
    expected = len(words)
    if code == _STRING and expected == 1:
        return words[0]
    if code == _HASH and expected % 2 == 0:
        made, expected = Hash(zip(words[::2], words[1::2], strict=True)), expected // 2
    elif code == _LIST:
        made = List(words)
    elif code == _SET:
        made = Set(words)
    elif code == _ZSET and not any(map(math.isnan, scores)):
        made = SortedSet.of(dict(zip(words, scores, strict=True)))
    else:
        raise Malformed("type")
    if len(made) != expected:
        raise Malformed("a member twice")
    return made


def duplicate(value: Value | bytes) -> Value | bytes:
    """Another value with the same contents."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, SortedSet):
        return SortedSet.of(value.scores)
    if isinstance(value, Hash):
        return Hash(value)
    return List(value) if isinstance(value, List) else Set(value)
