"""Positions in logs, one type for the source's log and one for the target's. Their LSNs are unrelated:
comparing them raises TypeError, and mypy rejects ordering them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Some = TypeVar("Some", bound="Position")


@dataclass(frozen=True, eq=False)
class Position:
    """The position after the record with this LSN; 0: before all records. Only its subclasses are used."""

    lsn: int

    def __post_init__(self) -> None:
        if self.lsn < 0:
            raise ValueError(f"{self.lsn} is not an LSN")

    def _same(self, other: object) -> int:
        if type(other) is not type(self):
            raise TypeError(
                f"a {type(self).__name__} cannot be compared with {other!r}, a position in another log"
            )
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
        """The number of records between the two."""
        return self.lsn - self._same(other)


class SourcePosition(Position):
    """In the log of a move's source."""

    def __lt__(self, other: SourcePosition) -> bool:
        return super().__lt__(other)

    def __sub__(self, other: SourcePosition) -> int:
        return super().__sub__(other)


class TargetPosition(Position):
    """In the log of a move's target."""

    def __lt__(self, other: TargetPosition) -> bool:
        return super().__lt__(other)

    def __sub__(self, other: TargetPosition) -> int:
        return super().__sub__(other)
