"""HSCAN, SSCAN, ZSCAN and SCAN: options, cursors that stay valid during changes, and Redis's patterns.
A collection is scanned in the order of its members' hashes, and the cursor is the hash to continue with.
So a scan returns every member that exists from its first call to its last."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

from verbena.kv.commands.arguments import integer
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values.collections import Hash, Set, SortedSet

MAX_UNSPLIT_SIZE = 128  # one call returns a whole collection of up to this size, regardless of COUNT
_MASK = (1 << 62) - 1
_CACHED = 8

Scannable = Hash | Set | SortedSet
AnyScannable = TypeVar("AnyScannable", Hash, Set, SortedSet)


@dataclass(frozen=True)
class Options:
    count: int = 10
    match: re.Pattern[bytes] | None = None
    type: bytes | None = None


def cursor_of(arg: bytes) -> int:
    if not re.fullmatch(rb"[+-]?[0-9]+|", arg) or abs(int(arg or 0)) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    return int(arg or 0) % (1 << 64)


def options(args: Sequence[bytes], *, with_type: bool = False) -> Options:
    count, match, kind = 10, None, None
    for position in range(0, len(args), 2):
        name = args[position].upper()
        if position + 1 == len(args):
            raise InvalidSyntax()
        arg = args[position + 1]
        if name == b"COUNT":
            count = integer(arg)
            if count < 1:
                raise InvalidSyntax()
        elif name == b"MATCH":
            match = None if arg == b"*" else pattern(arg)
        elif name == b"TYPE" and with_type:
            kind = arg
        else:
            raise InvalidSyntax()
    return Options(count, match, kind)


class _Snapshot(NamedTuple):
    value: weakref.ref[Scannable]
    hashes: list[int]
    members: list[bytes]


_snapshots: dict[int, _Snapshot] = {}  # sorted members by id() of the value, least recently used first


def members(value: Scannable, cursor: int, count: int) -> tuple[int, list[bytes]]:
    """Returns the next cursor (0 at the end) and about `count` members from `cursor` on."""
    there: Iterable[bytes] = value.scores if isinstance(value, SortedSet) else value
    if len(value) <= MAX_UNSPLIT_SIZE:
        return 0, list(there)
    snapshot = _snapshots.pop(id(value), None)
    if cursor == 0 or snapshot is None or snapshot.value() is not value:
        pairs = sorted((hash(member) & _MASK, member) for member in there)
        snapshot = _Snapshot(weakref.ref(value), [key for key, _ in pairs], [member for _, member in pairs])
    first = bisect_left(snapshot.hashes, cursor)
    last = min(first + count, len(snapshot.hashes))
    while 0 < last < len(snapshot.hashes) and snapshot.hashes[last] == snapshot.hashes[last - 1]:
        last += 1
    found = [member for member in snapshot.members[first:last] if member in value]
    if last == len(snapshot.hashes):
        return 0, found
    _snapshots[id(value)] = snapshot
    if len(_snapshots) > _CACHED:
        del _snapshots[next(iter(_snapshots))]
    return snapshot.hashes[last], found


def scan(
    call: Call,
    key: bytes,
    kind: type[AnyScannable],
    cursor: bytes,
    args: Sequence[bytes],
    item: Callable[[AnyScannable, bytes], Iterable[bytes]],
) -> Reply:
    """HSCAN, SSCAN and ZSCAN: the reply lists what `item` returns for each member that matches."""
    start = cursor_of(cursor)
    value = call.db.get(key, kind)
    if value is None:
        return [b"0", []]
    chosen = options(args)
    following, found = members(value, start, chosen.count)
    if chosen.match is not None:
        found = [member for member in found if chosen.match.match(member)]
    return [b"%d" % following, [part for member in found for part in item(value, member)]]


@lru_cache(maxsize=256)
def pattern(glob: bytes) -> re.Pattern[bytes]:
    """Compiles a glob of Redis: * ? [a-z] [^a] \\x. Successive stars are merged, and a part between two stars
    is matched at its first position without backtracking, so the cost is at most pattern length times key
    length."""
    pieces: list[list[bytes]] = [[]]
    position = 0
    while position < len(glob):
        char = glob[position : position + 1]
        position += 1
        if char == b"*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append([])
        elif char == b"?":
            pieces[-1].append(b".")
        elif char == b"[":
            piece, position = _bracket(glob, position)
            pieces[-1].append(piece)
        else:
            if char == b"\\" and position < len(glob):
                char = glob[position : position + 1]
                position += 1
            pieces[-1].append(re.escape(char))
    parts = [b"".join(piece) for piece in pieces]
    if len(parts) == 1:
        return re.compile(rb"(?s)" + parts[0] + rb"\Z")
    middle = b"".join(
        b"(?=(?P<g%d>.*?%s))(?P=g%d)" % (number, part, number) for number, part in enumerate(parts[1:-1])
    )
    return re.compile(rb"(?s)" + parts[0] + middle + b".*" + parts[-1] + rb"\Z")


def _bracket(glob: bytes, position: int) -> tuple[bytes, int]:
    """Converts a character class, from after its "[". Returns the regular expression and the position after
    it. An unclosed class extends to the end of the pattern."""
    inverted = glob[position : position + 1] == b"^"
    position += inverted
    ranges: list[tuple[int, int]] = []
    while position < len(glob):
        byte = glob[position]
        if byte == 0x5C and position + 1 < len(glob):
            position += 1
            ranges.append((glob[position], glob[position]))
        elif byte == 0x5D:
            position += 1
            break
        elif position + 2 < len(glob) and glob[position + 1] == 0x2D:
            last = glob[position + 2]
            ranges.append((min(byte, last), max(byte, last)))
            position += 2
        else:
            ranges.append((byte, byte))
        position += 1
    if not ranges:
        return (b"." if inverted else b"(?!)"), position
    inside = b"".join(b"\\x%02x-\\x%02x" % pair for pair in ranges)
    return b"[" + (b"^" if inverted else b"") + inside + b"]", position
