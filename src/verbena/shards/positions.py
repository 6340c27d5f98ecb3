"""Positions in logs, typed by whose log it is: a source's LSN and a target's have nothing to do with each
other, and comparing them is a TypeError, and an error of mypy's where they are ordered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Some = TypeVar("Some", bound="Position")


@dataclass(frozen=True, eq=False)
class Position:
    """Behind the record with this LSN; 0: before all. Only its kinds are used."""

    lsn: int

    def __post_init__(self) -> None:
        if self.lsn < 0:
            raise ValueError(f"{self.lsn} is not an LSN")

    def _same(self, other: object) -> int:
        if type(other) is not type(self):
            raise TypeError(f"a {type(self).__name__} cannot be compared with {other!r}: another log's")
        return other.lsn

    def __eq__(self, other: object) -> bool:
        return self.lsn == self._same(other)

    def __hash__(self) -> int:
        return hash((type(self), self.lsn))

    def __lt__(self: Some, other: Some) -> bool:
        return self.lsn < self._same(other)

    def __le__(self: Some, other: Some) -> bool:
        return self.lsn <= self._same(other)

    def __gt__(self: Some, other: Some) -> bool:
        return self.lsn > self._same(other)

    def __ge__(self: Some, other: Some) -> bool:
        return self.lsn >= self._same(other)

    def __sub__(self: Some, other: Some) -> int:
        """How many records lie between."""
        return self.lsn - self._same(other)


class SourcePosition(Position):
    """In the log of the node that gives."""

    def __lt__(self, other: SourcePosition) -> bool:
        return super().__lt__(other)

    def __sub__(self, other: SourcePosition) -> int:
        return super().__sub__(other)


class TargetPosition(Position):
    """In the log of the node that takes."""

    def __lt__(self, other: TargetPosition) -> bool:
        return super().__lt__(other)

    def __sub__(self, other: TargetPosition) -> int:
        return super().__sub__(other)
