"""The kinds of values that keys have. A kind parses a value from TOML or from the text of a variable or flag,
rejects other values with a message, and formats a value as TOML."""

from __future__ import annotations

import abc
import json
import os
import re
from dataclasses import dataclass
from typing import Any

from verbena.config.near import nearest

_INTEGER = re.compile(r"[+-]?[0-9](_?[0-9])*")
_SIZE = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([A-Za-z]*)")
_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}

UNITS = {"B": 1}
UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)}
UNITS |= {f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)}
_BY_SPELLING = {name.upper(): factor for name, factor in UNITS.items()}
_PLAIN_BELOW = 10_000  # 4096 is easier to read than 4KiB, but 64KiB easier than 65536


class InvalidValue(ValueError):
    """The value is not allowed. The text describes the value, and how to fix it if that is known."""


class Secret:
    """A text that repr() and str() hide, so that it is not shown by accident. reveal() returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(set)" if self._text else "Secret()"


class Kind(abc.ABC):
    """The base class of the kinds."""

    secret = False

    @property
    @abc.abstractmethod
    def allowed(self) -> str:
        """The allowed values, as a text that continues "must be …"."""

    @abc.abstractmethod
    def from_toml(self, value: object) -> Any:
        """Converts a value of TOML to that of the program. Raises InvalidValue if it is not allowed."""

    def from_text(self, text: str) -> Any:
        """Converts the text of a variable or a flag. Raises InvalidValue if it is not allowed."""
        return self.from_toml(text)

    def to_toml(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def to_json(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Boolean(Kind):
    @property
    def allowed(self) -> str:
        return "true or false"

    def from_toml(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        hint = "write it without quotes" if value in ("true", "false") else ""
        raise _refused(value, hint)

    def from_text(self, text: str) -> bool:
        if text.casefold() not in _WORDS:
            raise _refused(text)
        return _WORDS[text.casefold()]


@dataclass(frozen=True)
class Integer(Kind):
    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"an integer from {_grouped(self.low)} to {_grouped(self.high)}"

    def from_toml(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = isinstance(value, str) and _INTEGER.fullmatch(value)
            raise _refused(value, "write it without quotes" if quoted else "")
        if not self.low <= value <= self.high:
            raise _refused(value)
        return value

    def from_text(self, text: str) -> int:
        if not _INTEGER.fullmatch(text) or len(text) > 100:
            raise _refused(text)
        return self.from_toml(int(text))


@dataclass(frozen=True)
class Size(Kind):
    """A number of bytes: an integer, or a string with a unit (GB: 1000³, GiB: 1024³)."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a size from {format_size(self.low)} to {format_size(self.high)}"

    def from_toml(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise _refused(value)
        size = parse_size(value) if isinstance(value, str) else value
        if not self.low <= size <= self.high:
            raise _refused(value)
        return size

    def to_toml(self, value: int) -> str:
        text = format_size(value)
        return text if text.isdigit() else f'"{text}"'


@dataclass(frozen=True)
class Choice(Kind):
    options: tuple[str, ...]

    @property
    def allowed(self) -> str:
        *others, last = (f'"{option}"' for option in self.options)
        return f"{', '.join(others)} or {last}"

    def from_toml(self, value: object) -> str:
        if isinstance(value, str) and value in self.options:
            return value
        near = nearest(value, self.options) if isinstance(value, str) else None
        raise _refused(value, f'did you mean "{near}"?' if near else "")


@dataclass(frozen=True)
class Text(Kind):
    """A string that `pattern` matches completely; `what` describes it."""

    what: str = "a string"
    pattern: str = r"[^\x00-\x1f\x7f\ud800-\udfff]*"

    @property
    def allowed(self) -> str:
        return self.what

    def from_toml(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise _refused(value)
        return value


@dataclass(frozen=True)
class FilePath(Text):
    """A path. `~` is the home folder; a path in a configuration file is relative to that file."""

    def from_toml(self, value: object) -> str:
        return os.path.expanduser(super().from_toml(value))


@dataclass(frozen=True)
class Endpoint(Kind):
    """`host:port`, `[address]:port`, or an empty string."""

    @property
    def allowed(self) -> str:
        return 'an address and port such as "127.0.0.1:9121" or "[::1]:9121", or "" for none'

    def from_toml(self, value: object) -> str:
        match = (
            re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:]+):([0-9]{1,5})", value)
            if isinstance(value, str)
            else None
        )
        if value != "" and (not match or int(match[2]) > 65535):
            raise _refused(value)
        return str(value)


@dataclass(frozen=True)
class SecretText(Kind):
    """A secret. Messages never quote it, even if it is rejected."""

    shortest: int
    secret = True

    @property
    def allowed(self) -> str:
        return f"a string of at least {self.shortest} characters"

    def from_toml(self, value: object) -> Secret:
        if isinstance(value, Secret):
            value = value.reveal()
        if not isinstance(value, str):
            raise InvalidValue("not a value of another type")
        if value and len(value) < self.shortest:
            raise InvalidValue(f"not one of {len(value)}")
        return Secret(value)

    def to_toml(self, value: Secret) -> str:
        return '"…"' if value else '""'

    def to_json(self, value: Secret) -> str:
        return "(hidden)" if value else ""


def parse_size(text: str) -> int:
    """Parses "4096", "64KiB", "1GB" or "1.5 GB" to bytes. Raises InvalidValue if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise _refused(text)
    whole, fraction, unit = match[1], match[2] or "", match[3].upper()
    if unit in ("K", "M", "G", "T"):
        number = f"{whole}.{fraction}" if fraction else whole
        raise _refused(text, f'ambiguous unit: write "{number}{unit}iB" (1024) or "{number}{unit}B" (1000)')
    if unit and unit not in _BY_SPELLING:
        raise _refused(text, f"the units are {', '.join(UNITS)}")
    scale: int = 10 ** len(fraction)
    size, rest = divmod(int(whole + fraction) * _BY_SPELLING[unit or "B"], scale)
    if rest:
        raise _refused(text, "not a whole number of bytes")
    return size


def format_size(size: int) -> str:
    """Formats a size in its shortest exact form: 4096, 64KiB, 1GB."""
    if size < _PLAIN_BELOW:
        return str(size)
    ways = [f"{size // factor}{unit}" for unit, factor in UNITS.items() if factor > 1 and size % factor == 0]
    return min(ways, key=len, default=str(size))


def _grouped(number: int) -> str:
    return f"{number:,}" if number >= _PLAIN_BELOW else str(number)


def shown(value: object) -> str:
    """Formats a value for a message: short, in one line, arrays and tables by their type only."""
    if isinstance(value, (list, tuple)):
        return "an array"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of that length"  # str() raises for very long ones
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value)
    return printable(text if len(text) <= 60 else f"{text[:40]}…{text[-10:]}")


def printable(text: str) -> str:
    """Escapes characters that are invisible or control the terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _refused(value: object, hint: str = "") -> InvalidValue:
    return InvalidValue("; ".join(filter(None, (f"not {shown(value)}", hint))))
