"""HyperLogLogs in the string format of Redis: 2^14 registers of 6 bits, with the same hash and estimate, so
that both programs can read each other's strings.

    "HYLL"  encoding (0 dense, 1 sparse)  3 unused  cached count, 8 bytes; its top bit marks it as stale

Sparse registers are runs: 00nnnnnn up to 64 zeros, 01nnnnnn nnnnnnnn up to 16384 zeros, 1vvvvvnn a value up
to 4 times."""

from __future__ import annotations

import math
import re
from functools import lru_cache

REGISTERS = 1 << 14
_BITS_OF_HASH = 64 - 14
_HEADER = 16
_DENSE_BYTES = REGISTERS * 6 // 8
_SPARSE_MAX_BYTES = 3000
_SPARSE_MAX_VALUE = 32
_STALE = b"\0\0\0\0\0\0\0\x80"
_SEED = 0xADC83B19
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1
_RUN = re.compile(rb"(?s)(.)\1*")


class Invalid(ValueError):
    """The string is not a HyperLogLog."""


class Corrupt(ValueError):
    """The header is that of a HyperLogLog, but the runs are not valid."""


def murmur64a(key: bytes) -> int:
    length = len(key)
    mixed = _SEED ^ (length * _MULTIPLIER & _MASK)
    whole = length & ~7
    for position in range(0, whole, 8):
        word = int.from_bytes(key[position : position + 8], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 47) * _MULTIPLIER & _MASK
        mixed = (mixed ^ word) * _MULTIPLIER & _MASK
    if length != whole:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 47) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 47


def place(element: bytes) -> tuple[int, int]:
    """Returns an element's register (the low 14 bits of its hash) and the register's minimum value: 1 + the
    number of trailing zeros in the other 50 bits."""
    mixed = murmur64a(element)
    rest = mixed >> 14 | 1 << _BITS_OF_HASH
    return mixed & (REGISTERS - 1), (rest & -rest).bit_length()


def check(text: bytes) -> None:
    dense = text[4:5] == b"\0"
    if len(text) < _HEADER or text[:4] != b"HYLL" or text[4] > 1:
        raise Invalid
    if dense and len(text) != _HEADER + _DENSE_BYTES:
        raise Invalid


def is_dense(text: bytes) -> bool:
    return text[4] == 0


def empty() -> bytes:
    return b"HYLL\1\0\0\0" + bytes(8) + _sparse(bytes(REGISTERS))


def registers(text: bytes) -> bytearray:
    """Returns the registers, one byte each. Raises Corrupt if the runs are not valid."""
    found = bytearray(REGISTERS)
    if is_dense(text):
        for group in range(REGISTERS // 4):
            start = _HEADER + 3 * group
            bits = text[start] | text[start + 1] << 8 | text[start + 2] << 16
            if bits:
                at = 4 * group
                found[at] = bits & 63
                found[at + 1] = bits >> 6 & 63
                found[at + 2] = bits >> 12 & 63
                found[at + 3] = bits >> 18
        return found
    position, register = _HEADER, 0
    while position < len(text):
        byte = text[position]
        position += 1
        if byte < 0x40:
            register += byte + 1
        elif byte < 0x80:
            if position == len(text):
                raise Corrupt
            register += ((byte & 63) << 8 | text[position]) + 1
            position += 1
        else:
            count = (byte & 3) + 1
            if register + count > REGISTERS:
                raise Corrupt
            found[register : register + count] = bytes(((byte >> 2 & 31) + 1,)) * count
            register += count
    if register != REGISTERS:
        raise Corrupt
    return found


def _sparse(values: bytes | bytearray) -> bytes:
    out = bytearray()
    for run in _RUN.finditer(values):
        value, count = run[1][0], len(run[0])
        if value == 0:
            out += bytes((count - 1,)) if count <= 64 else (0x4000 | count - 1).to_bytes(2, "big")
            continue
        while count:
            some = min(count, 4)
            out.append(0x80 | (value - 1) << 2 | some - 1)
            count -= some
    return bytes(out)


def _dense(values: bytes | bytearray) -> bytes:
    out = bytearray()
    for at in range(0, REGISTERS, 4):
        bits = values[at] | values[at + 1] << 6 | values[at + 2] << 12 | values[at + 3] << 18
        out += bits.to_bytes(3, "little")
    return bytes(out)


def encode(values: bytes | bytearray, *, dense: bool) -> bytes:
    """Encodes registers, with the cached count marked as stale. The encoding is dense if requested, or if the
    sparse one would be too long or cannot represent a value."""
    if not dense and max(values) <= _SPARSE_MAX_VALUE:
        runs = _sparse(values)
        if len(runs) <= _SPARSE_MAX_BYTES:
            return b"HYLL\1\0\0\0" + _STALE + runs
    return b"HYLL\0\0\0\0" + _STALE + _dense(values)


def add(text: bytes, elements: tuple[bytes, ...]) -> bytes | None:
    """Returns the string with these elements added; None if no register changes. Raises Corrupt if the string
    is not valid."""
    places = [place(element) for element in elements]
    if is_dense(text):
        return _add_dense(text, places)
    values = registers(text)
    changed = False
    for register, value in places:
        if values[register] < value:
            values[register] = value
            changed = True
    return encode(values, dense=False) if changed else None


def _add_dense(text: bytes, places: list[tuple[int, int]]) -> bytes | None:
    changed: bytearray | None = None
    for register, value in places:
        now = changed if changed is not None else text
        at, shift = _HEADER + register * 6 // 8, register * 6 & 7
        pair = int.from_bytes(now[at : at + 2], "little")
        if pair >> shift & 63 < value:
            changed = bytearray(text) if changed is None else changed
            pair = pair & ~(63 << shift) | value << shift
            width = len(changed[at : at + 2])
            changed[at : at + 2] = pair.to_bytes(width, "little")
    if changed is not None:
        changed[8:_HEADER] = _STALE
        return bytes(changed)
    return None


def merged(texts: list[bytes]) -> bytearray:
    result = registers(texts[0])
    for text in texts[1:]:
        result = bytearray(map(max, result, registers(text)))
    return result


@lru_cache(maxsize=64)
def count(text: bytes) -> int:
    """Returns the approximate number of distinct elements: the cached count, or a new estimate if stale."""
    if not text[_HEADER - 1] & 0x80:
        return int.from_bytes(text[8:_HEADER], "little")
    return estimate(registers(text))


def estimate(values: bytes | bytearray) -> int:
    """Returns Ertl's improved estimate, computed in doubles in the order that Redis uses."""
    many = float(REGISTERS)
    total = many * _tau((many - values.count(_BITS_OF_HASH + 1)) / many)
    for value in range(_BITS_OF_HASH, 0, -1):
        total = (total + values.count(value)) * 0.5
    total += many * _sigma(values.count(0) / many)
    return math.floor(0.721347520444481703680 * many * many / total + 0.5)


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    y, z = 1.0, x
    while True:
        x *= x
        before = z
        z += x * y
        y += y
        if before == z:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1.0 - x
    while True:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) ** 2 * y
        if before == z:
            return z / 3.0
