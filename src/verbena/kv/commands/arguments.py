"""Parses arguments as text, numbers, ranges and options, exactly as Redis does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from verbena.kv.commands.replies import CommandError, InvalidSyntax, NotAFloat, NotAnInteger

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
NOT_POSITIVE = "ERR value is out of range, must be positive"

_INTEGER = re.compile(rb"-?[1-9][0-9]{0,18}|0")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.I)
_HEX = re.compile(rb"[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.I)
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.I)
_SPACES = b" \t\n\v\f\r"


def text(arg: bytes) -> str:
    """Decodes an argument without loss: encoding the text gives the same bytes."""
    return arg.decode("utf-8", "surrogateescape")


def display(arg: bytes) -> str:
    """Decodes an argument for a message; invalid bytes are replaced."""
    return arg.decode("utf-8", "replace")


def as_integer(arg: bytes) -> int | None:
    """Parses a 64-bit integer in its canonical form, so not "+1", "01", "-0" or " 1". None for anything
    else."""
    if _INTEGER.fullmatch(arg) is None:
        return None
    number = int(arg)
    return number if INT64_MIN <= number <= INT64_MAX else None


def integer(arg: bytes, error: str = "") -> int:
    """As as_integer(), but raises CommandError, with `error` if given."""
    number = as_integer(arg)
    if number is None:
        raise CommandError(error) if error else NotAnInteger()
    return number


def integer_within(arg: bytes, least: int, error: str, most: int = INT64_MAX) -> int:
    """Parses an integer from `least` to `most`. CommandError with `error` if it is not one or out of
    range."""
    number = as_integer(arg)
    if number is None or not least <= number <= most:
        raise CommandError(error)
    return number


def count_within(arg: bytes, most: int) -> int:
    """Parses a signed count from -most to most. CommandError if it is out of range."""
    number = integer(arg)
    if not -most <= number <= most:
        raise CommandError(f"ERR value is out of range, value must between {-most} and {most}")
    return number


def _strtod(arg: bytes) -> tuple[float, bool] | None:
    """Parses a whole argument like strtod(); returns the value and whether ERANGE is set. None if it is not a
    number, or NaN."""
    if _DECIMAL.fullmatch(arg):
        value = float(arg)
        if value == 0.0:
            return value, re.search(rb"[1-9]", re.split(rb"[eE]", arg)[0]) is not None
        return value, math.isinf(value)
    if _INFINITE.fullmatch(arg):
        return float(arg), False
    if _HEX.fullmatch(arg):
        try:
            return float.fromhex(arg.decode()), False
        except OverflowError:
            return math.copysign(math.inf, -1.0 if arg[:1] == b"-" else 1.0), True
    return None


def as_float(arg: bytes) -> float | None:
    """Parses a double; infinities and hexadecimal are allowed. None for NaN, overflow, underflow to zero, and
    anything else."""
    read = _strtod(arg)
    return None if read is None or (read[1] and (read[0] == 0.0 or math.isinf(read[0]))) else read[0]


def floating(arg: bytes, error: str = "") -> float:
    number = as_float(arg)
    if number is None:
        raise CommandError(error) if error else NotAFloat()
    return number


def format_double(number: float) -> bytes:
    """Formats a double as the replies of both protocols do."""
    return b"%.17g" % number


def timeout_seconds(arg: bytes) -> float:
    number = as_float(arg)
    if number is None or math.isinf(number):
        raise CommandError("ERR timeout is not a float or out of range")
    if number < 0:
        raise CommandError("ERR timeout is negative")
    if number * 1000 > INT64_MAX:
        raise CommandError("ERR timeout is out of range")
    return number


def key_count(arg: bytes, rest: Sequence[bytes], error: str) -> int:
    """Parses the number of keys in `rest`, the arguments that follow. CommandError with `error` if it is not
    positive, InvalidSyntax if there are fewer arguments."""
    count = integer_within(arg, 1, error)
    if count > len(rest):
        raise InvalidSyntax()
    return count


def score_range(low: bytes, high: bytes) -> tuple[float, bool, float, bool]:
    """Parses a range of scores: returns the minimum, whether it is exclusive, the maximum, whether it is
    exclusive. CommandError if one is not a number."""

    def bound(arg: bytes) -> tuple[float, bool]:
        excluded = arg[:1] == b"("
        # Like Redis, which calls strtod() here without a check for leading spaces, an empty text or overflow.
        text = (arg[1:] if excluded else arg).split(b"\0")[0]
        read = _strtod(text.lstrip(_SPACES)) if text else (0.0, False)
        if read is None:
            raise CommandError("ERR min or max is not a float")
        return read[0], excluded

    return (*bound(low), *bound(high))


class LexBound:
    """One end of a lexicographical range. `member` is None for "-" and "+", the ends beyond all members."""

    __slots__ = ("excluded", "infinity", "member")

    def __init__(self, text: bytes) -> None:
        self.member: bytes | None = None
        self.excluded = False
        self.infinity = 0
        if text in (b"-", b"+"):
            self.infinity = -1 if text == b"-" else 1
        elif text[:1] in (b"(", b"["):
            self.member = text[1:]
            self.excluded = text[:1] == b"("
        else:
            raise CommandError("ERR min or max not valid string range item")

    def admits_above(self, member: bytes) -> bool:
        """Returns whether the range includes the member, if this is its lower end."""
        if self.member is None:
            return self.infinity < 0
        return member > self.member if self.excluded else member >= self.member

    def admits_below(self, member: bytes) -> bool:
        if self.member is None:
            return self.infinity > 0
        return member < self.member if self.excluded else member <= self.member


def clamp_range(start: int, stop: int, length: int) -> tuple[int, int]:
    """Converts inclusive positions, possibly negative, to the bounds of a slice; (0, 0) if it is empty."""
    if start < 0:
        start = max(start + length, 0)
    if stop < 0:
        stop += length
    stop = min(stop, length - 1) + 1
    return (start, stop) if start < stop else (0, 0)


def numkeys_at(position: int, *before: int) -> Callable[[list[bytes]], list[int]]:
    """Returns a `find_keys` for commands with the number of keys at `position`, followed by the keys.
    `before`: positions of further keys."""

    def find(argv: list[bytes]) -> list[int]:
        count = as_integer(argv[position]) if position < len(argv) else None
        if count is None or not 0 < count <= len(argv) - position - 1:
            return []
        return [*before, *range(position + 1, position + 1 + count)]

    return find
