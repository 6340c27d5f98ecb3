"""The types that Python holds. Strings are the engine's."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar

from sortedcontainers import SortedList


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    TYPE: ClassVar[str] = "hash"
    __slots__ = ("__weakref__",)


class List(deque[bytes]):
    """Elements, left to right."""

    TYPE: ClassVar[str] = "list"
    __slots__ = ()


class Set(dict[bytes, int | None]):
    """Members. Once one was drawn by chance from a large set, `drawn` has them in any order and each member's
    value is its place there, so that a draw costs the same however many they are. Use add(), discard()."""

    TYPE: ClassVar[str] = "set"
    __slots__ = ("__weakref__", "drawn")

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        super().__init__(dict.fromkeys(members))
        self.drawn: list[bytes] | None = None

    def add(self, member: bytes) -> bool:
        """True: it is new."""
        if member in self:
            return False
        if self.drawn is None:
            self[member] = None
        else:
            self[member] = len(self.drawn)
            self.drawn.append(member)
        return True

    def discard(self, member: bytes) -> bool:
        """True: it was there."""
        place = self.pop(member, -1)
        if place == -1:
            return False
        if self.drawn is not None and place is not None:
            last = self.drawn.pop()
            if last != member:
                self.drawn[place] = last
                self[last] = place
        return True

    def draw(self) -> bytes:
        """A member by chance; it stays."""
        if self.drawn is None:
            if len(self) <= 64:
                return next(islice(self, random.randrange(len(self)), None))
            self.drawn = list(self)
            self.update(zip(self.drawn, range(len(self.drawn)), strict=True))
        return random.choice(self.drawn)


class SortedSet:
    """Members with scores, ordered by score and then by member."""

    TYPE: ClassVar[str] = "zset"
    __slots__ = ("__weakref__", "order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList[tuple[float, bytes]] = SortedList()

    @classmethod
    def of(cls, scores: dict[bytes, float]) -> SortedSet:
        made = cls()
        made.scores = {member: score + 0.0 for member, score in scores.items()}
        made.order.update((score, member) for member, score in made.scores.items())
        return made

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self.scores

    def __iter__(self) -> Iterator[bytes]:
        return (member for _, member in self.order)

    def put(self, member: bytes, score: float) -> None:
        score += 0.0  # of the two zeros only the positive one is stored
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


Value = Hash | List | Set | SortedSet
KINDS: tuple[type[Value], ...] = (Hash, List, Set, SortedSet)
