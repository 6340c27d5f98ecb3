"""What a parameter may hold, as CONFIG SET takes it and CONFIG GET shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_UNITS = {
    "": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000**2, "mb": 1 << 20, "g": 1000**3, "gb": 1 << 30,
}  # fmt: skip


class InvalidValue(ValueError):
    """The value is invalid; the text is the one that Redis has."""


class Kind:
    def parse(self, text: str) -> Any:
        raise NotImplementedError

    def show(self, value: Any) -> str:
        return str(value)


class Text(Kind):
    def parse(self, text: str) -> str:
        return text


class YesNo(Kind):
    def parse(self, text: str) -> bool:
        if text.lower() not in ("yes", "no"):
            raise InvalidValue("argument must be 'yes' or 'no'")
        return text.lower() == "yes"

    def show(self, value: Any) -> str:
        return "yes" if value else "no"


@dataclass(frozen=True)
class Integer(Kind):
    low: int
    high: int

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            raise InvalidValue("argument couldn't be parsed into an integer")
        if not self.low <= int(text) <= self.high:
            raise InvalidValue(f"argument must be between {self.low} and {self.high} inclusive")
        return int(text)


@dataclass(frozen=True)
class Memory(Kind):
    """Bytes, or with a unit: 1k is 1000, 1kb is 1024."""

    low: int = 0

    def parse(self, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,19})([a-z]*)", text.lower())
        if not match or match[2] not in _UNITS:
            raise InvalidValue("argument must be a memory value")
        value = int(match[1]) * _UNITS[match[2]]
        if not self.low <= value < 2**63:
            raise InvalidValue(f"argument must be between {self.low} and {2**63 - 1} inclusive")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    options: tuple[str, ...]

    def parse(self, text: str) -> str:
        if text.lower() not in self.options:
            raise InvalidValue(f"argument(s) must be one of the following: {', '.join(self.options)}")
        return text.lower()


class Percentiles(Kind):
    def parse(self, text: str) -> tuple[float, ...]:
        try:
            values = tuple(float(word) for word in text.split())
        except ValueError:
            raise InvalidValue("Invalid latency-tracking-info-percentiles") from None
        if any(not 0 <= value <= 100 for value in values):
            raise InvalidValue(
                "latency-tracking-info-percentiles should contain values between 0.0 and 100.0"
            )
        return values

    def show(self, value: Any) -> str:
        return " ".join(f"{number:g}" for number in value)
