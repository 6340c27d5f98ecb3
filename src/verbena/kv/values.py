"""The types that Python holds. Strings are the engine's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import ClassVar, Union

from sortedcontainers import SortedList


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    TYPE: ClassVar[str] = "hash"
    __slots__ = ()


class List(deque[bytes]):
    """Elements, left to right."""

    TYPE: ClassVar[str] = "list"
    __slots__ = ()


class Set(dict[bytes, None]):
    """Members, in the order in which they came, so that SCAN can go on where it stopped."""

    TYPE: ClassVar[str] = "set"
    __slots__ = ()


class SortedSet:
    """Members with scores, ordered by score and then by member."""

    TYPE: ClassVar[str] = "zset"
    __slots__ = ("order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList = SortedList()  # of (score, member)

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self.scores

    def __iter__(self) -> Iterator[bytes]:
        return (member for _, member in self.order)

    def put(self, member: bytes, score: float) -> None:
        old = self.scores.get(member)
        if old is not None:
            if old == score:
                return
            self.order.remove((old, member))
        self.scores[member] = score
        self.order.add((score, member))

    def discard(self, member: bytes) -> bool:
        score = self.scores.pop(member, None)
        if score is None:
            return False
        self.order.remove((score, member))
        return True

    def rank(self, member: bytes) -> int | None:
        score = self.scores.get(member)
        return None if score is None else int(self.order.index((score, member)))

    def update(self, pairs: Iterable[tuple[bytes, float]]) -> None:
        for member, score in pairs:
            self.put(member, score)


Value = Union[Hash, List, Set, SortedSet]
KINDS: tuple[type[Value], ...] = (Hash, List, Set, SortedSet)
