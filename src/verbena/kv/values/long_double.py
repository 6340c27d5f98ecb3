"""Arithmetic of x87 long doubles (64 bits of mantissa), for the results that Redis has on x86-64."""

from __future__ import annotations

import re
from fractions import Fraction

_DECIMAL = re.compile(rb"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e([+-]?[0-9]+))?", re.I)
_HEX = re.compile(rb"([+-]?)0x([0-9a-f]*)(?:\.([0-9a-f]*))?(?:p([+-]?[0-9]+))?", re.I)
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.I)
_MANTISSA = 64
_MAX_EXPONENT = 16384
_MIN_EXPONENT = -16445


class Infinite(ArithmeticError):
    """The text is an infinity, which cannot be added."""


def rounded(number: Fraction) -> Fraction | None:
    """Returns the nearest long double, ties to even; None if the number is too large."""
    if number == 0:
        return number
    magnitude = abs(number)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent - _MANTISSA + 1, _MIN_EXPONENT)
    scaled = magnitude / Fraction(2) ** unit
    result = round(scaled) * Fraction(2) ** unit
    if result >= Fraction(2) ** _MAX_EXPONENT:
        return None
    return -result if number < 0 else result


def read(word: bytes) -> Fraction | None:
    """Parses a text like strtold(). None if it is not a number or out of range; Infinite if it is
    infinite."""
    if len(word) > 255:
        return None
    if _INFINITE.fullmatch(word):
        raise Infinite
    found = _DECIMAL.fullmatch(word)
    if found:
        exponent = int(found[3] or 0)
        if abs(exponent) > 6000:
            return Fraction(0) if re.fullmatch(rb"[0.]+", found[2]) else None
        number = Fraction(found[2].decode()) * Fraction(10) ** exponent
    else:
        found = _HEX.fullmatch(word)
        if not found or not (found[2] or found[3]):
            return None
        fraction = found[3] or b""
        exponent = int(found[4] or 0) - 4 * len(fraction)
        if abs(exponent) > 40000:
            return None
        number = Fraction(int(found[2] + fraction, 16)) * Fraction(2) ** exponent
    result = rounded(number)
    if result is None or (result == 0 and number != 0):
        return None
    return -result if found[1] == b"-" else result


def format_number(number: Fraction) -> bytes:
    """Formats a number with up to 17 decimals, without trailing zeros."""
    scaled = round(abs(number) * 10**17)
    whole, part = divmod(scaled, 10**17)
    text = f"{whole}.{part:017d}".rstrip("0").rstrip(".")
    return (f"-{text}" if number < 0 and text != "0" else text).encode()
