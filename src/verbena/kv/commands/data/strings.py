"""Strings: the commands that are not native."""

from __future__ import annotations

from array import array
from typing import Any

from verbena.kv.commands.arguments import clamp_range, integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply, WrongType
from verbena.kv.server.call import Call

MAX_CELLS = 128 * 1024 * 1024  # 512 MiB


@command("SUBSTR", arity=4, flags="readonly", keys=(1, 1, 1), group="string",
         summary="Returns a substring of the string at a key. Deprecated: use GETRANGE.")  # fmt: skip
def substr(call: Call, key: bytes, first: bytes, last: bytes) -> Reply:
    start, stop = integer(first), integer(last)
    text = call.db.string(key) or b""
    if start < 0 and stop < 0 and start > stop:
        return b""
    return text[slice(*clamp_range(start, max(stop, -len(text)), len(text)))]


@command("LCS", arity=-3, flags="readonly", keys=(1, 2, 1), group="string", since="7.0.0",
         summary="Returns the longest common subsequence of two strings.")  # fmt: skip
def lcs(call: Call, first: bytes, second: bytes, *args: bytes) -> Reply:
    try:
        one, other = call.db.string(first) or b"", call.db.string(second) or b""
    except WrongType:
        raise CommandError("ERR The specified keys must contain string values") from None
    flags: set[bytes] = set()
    least, position = 0, 0
    while position < len(args):
        name = args[position].upper()
        if name == b"MINMATCHLEN" and position + 1 < len(args):
            position += 1
            least = max(integer(args[position]), 0)
        elif name not in (b"IDX", b"LEN", b"WITHMATCHLEN"):
            raise InvalidSyntax()
        flags.add(name)
        position += 1
    if {b"IDX", b"LEN"} <= flags:
        raise CommandError("ERR If you want both the length and indexes, please just use IDX.")
    if (len(one) + 1) * (len(other) + 1) > MAX_CELLS:
        raise CommandError("ERR Insufficient memory, failed allocating transient memory for LCS")
    table = _table(one, other)
    if b"LEN" in flags:
        return table[-1][-1]
    text, ranges = _walk(one, other, table)
    if b"IDX" not in flags:
        return text
    matches: list[Any] = []
    for start, other_start, length in ranges:
        if length >= least:
            match: list[Any] = [[start, start + length - 1], [other_start, other_start + length - 1]]
            matches.append([*match, length] if b"WITHMATCHLEN" in flags else match)
    return {b"matches": matches, b"len": len(text)}


def _table(one: bytes, other: bytes) -> list[array[int]]:
    """Returns the table of LCS lengths: row i, column j is for the first i bytes of `one` and j of
    `other`."""
    row = array("I", bytes(4 * (len(other) + 1)))
    table = [row]
    for byte in one:
        new = array("I", row)
        best = 0
        for column, match in enumerate(other):
            best = row[column] + 1 if match == byte else max(best, row[column + 1])
            new[column + 1] = best
        table.append(new)
        row = new
    return table


def _walk(one: bytes, other: bytes, table: list[array[int]]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Returns the subsequence and its runs (position in `one`, position in `other`, length), last first."""
    text = bytearray()
    ranges: list[tuple[int, int, int]] = []
    i, j, run = len(one), len(other), 0
    while i and j:
        if one[i - 1] == other[j - 1]:
            i, j, run = i - 1, j - 1, run + 1
            text.append(one[i])
            continue
        if run:
            ranges.append((i, j, run))
            run = 0
        if table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    if run:
        ranges.append((i, j, run))
    text.reverse()
    return bytes(text), ranges
