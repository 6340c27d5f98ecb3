"""The types that Python holds. Strings are the engine's."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar

from sortedcontainers import SortedList

from verbena import _native

# What a collection of few takes, and then each element.
_EMPTY_DICT = sys.getsizeof({b"": b""})
_EMPTY_SORTED = _EMPTY_DICT + 700  # a sorted list is an object with lists of its own
_WORD = 40  # of a bytes object: its head, and what is lost by rounding up
_PLACE = 45  # of an entry in a dict, which is between a third and two thirds full
_PAIR = _PLACE + 2 * _WORD
_MEMBER = _PLACE + _WORD
_DRAWN = 40  # a place in the list of a set that was drawn from, and its number
_SCORED = _MEMBER + sys.getsizeof(0.0) + sys.getsizeof((0.0, b"")) + 8


_NOTED = 1 << 15  # names in one set: growing it, and looking for what is left in it, stays short


class Changes:
    """What has become of elements: the names of those that have changed or gone, and how often anything has
    happened. Who comes is only counted, since a dict has it at the end."""

    __slots__ = ("_full", "_names", "count")

    def __init__(self) -> None:
        self._full: list[set[bytes]] = []
        self._names: set[bytes] = set()
        self.count = 0

    def tell(self, names: Collection[bytes]) -> None:
        self._names.update(names)
        self.count += len(names)
        if len(self._names) >= _NOTED:
            self._full.append(self._names)
            self._names = set()

    def take(self) -> set[bytes]:
        """Some of the names, which are forgotten here; no more are left when it is empty."""
        if self._full:
            return self._full.pop()
        names, self._names = self._names, set()
        return names


class Walked:
    """What a copy that is made in pieces needs to know of a collection: what has changed since it began."""

    __slots__ = ()
    walks: tuple[Changes, ...]

    def begin_walk(self) -> Changes:
        """From now on what changes is told here, until end_walk()."""
        changes = Changes()
        self.walks = (*self.walks, changes)  # type: ignore[misc]  # the heirs have the slot
        return changes

    def end_walk(self, changes: Changes) -> None:
        self.walks = tuple(walk for walk in self.walks if walk is not changes)  # type: ignore[misc]

    def _tell(self, *names: bytes) -> None:
        for walk in self.walks:
            walk.tell(names)

    def _tell_new(self, count: int = 1) -> None:
        for walk in self.walks:
            walk.count += count


def _shed(elements: dict[bytes, Any], count: int) -> None:
    for _ in range(min(count, len(elements))):
        dict.popitem(elements)


# What nobody has any more is freed by shed(), about so many elements at a time; `held` is of no use by then.
class Hash(Walked, dict[bytes, bytes]):
    """Fields and their values. `held` is about how much memory they take, counted as they come and go."""

    TYPE: ClassVar[str] = "hash"
    __slots__ = ("__weakref__", "held", "walks")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] | dict[bytes, bytes] = ()) -> None:
        super().__init__(pairs)
        self.walks = ()
        self.held = _EMPTY_DICT + _PAIR * len(self) + sum(map(len, self)) + sum(map(len, self.values()))

    def __setitem__(self, field: bytes, content: bytes) -> None:
        old = self.get(field)
        self.held += len(content) + (_PAIR + len(field) if old is None else -len(old))
        super().__setitem__(field, content)
        if self.walks:
            self._tell_new() if old is None else self._tell(field)

    def update(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:  # type: ignore[override]
        new = dict(pairs)
        changed = self.keys() & new.keys()
        for field in changed:
            self.held -= _PAIR + len(field) + len(self[field])
        self.held += _PAIR * len(new) + sum(map(len, new)) + sum(map(len, new.values()))
        super().update(new)
        if self.walks:
            self._tell(*changed)
            self._tell_new(len(new) - len(changed))

    def discard(self, field: bytes) -> bool:
        """True: it was there."""
        old = super().pop(field, None)
        if old is None:
            return False
        self.held -= _PAIR + len(field) + len(old)
        if self.walks:
            self._tell(field)
        return True

    def __delitem__(self, field: bytes) -> None:
        if not self.discard(field):
            raise KeyError(field)

    def shed(self, count: int) -> None:
        _shed(self, count)


# Elements, left to right. It is native: a copy in pieces must reach any place of it at once.
List = _native.kv.List


class Set(Walked, dict[bytes, int | None]):
    """Members. Once one was drawn by chance from a large set, `drawn` has them in any order and each member's
    value is its place there, so that a draw costs the same however many they are. Use add(), discard().
    `held` as a hash has it."""

    TYPE: ClassVar[str] = "set"
    __slots__ = ("__weakref__", "drawn", "held", "walks")

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        super().__init__(dict.fromkeys(members))
        self.drawn: list[bytes] | None = None
        self.walks = ()
        self.held = _EMPTY_DICT + _MEMBER * len(self) + sum(map(len, self))

    def add(self, member: bytes) -> bool:
        """True: it is new."""
        if member in self:
            return False
        self.held += _MEMBER + len(member)
        if self.drawn is None:
            self[member] = None
        else:
            self[member] = len(self.drawn)
            self.drawn.append(member)
            self.held += _DRAWN
        if self.walks:
            self._tell_new()
        return True

    def discard(self, member: bytes) -> bool:
        """True: it was there."""
        place = self.pop(member, -1)
        if place == -1:
            return False
        self.held -= _MEMBER + len(member)
        if self.drawn is not None and place is not None:
            self.held -= _DRAWN
            last = self.drawn.pop()
            if last != member:
                self.drawn[place] = last
                self[last] = place
        if self.walks:
            self._tell(member)
        return True

    def draw(self) -> bytes:
        """A member by chance; it stays."""
        if self.drawn is None:
            if len(self) <= 64:
                return next(islice(self, random.randrange(len(self)), None))
            self.drawn = list(self)
            self.update(zip(self.drawn, range(len(self.drawn)), strict=True))
            self.held += _DRAWN * len(self)
        return random.choice(self.drawn)

    def shed(self, count: int) -> None:
        _shed(self, count)
        if self.drawn:
            del self.drawn[-count:]


def _lists(order: SortedList[tuple[float, bytes]]) -> list[list[tuple[float, bytes]]]:
    return order._lists  # type: ignore[attr-defined,no-any-return]  # the stubs have the public names only


class SortedSet(Walked):
    """Members with scores, ordered by score and then by member; others read `scores` and `order`, and change
    neither. `held` as a hash has it."""

    TYPE: ClassVar[str] = "zset"
    __slots__ = ("__weakref__", "_hidden", "held", "order", "scores", "walks")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList[tuple[float, bytes]] = SortedList()
        self._hidden = 0  # lists of the order
        self.walks = ()
        self.held = _EMPTY_SORTED

    @classmethod
    def of(cls, scores: dict[bytes, float]) -> SortedSet:
        made = cls()
        made.scores = {member: score + 0.0 for member, score in scores.items()}
        made.order.update((score, member) for member, score in made.scores.items())
        made._hide()
        made.held += _SCORED * len(made) + sum(map(len, made.scores))
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
        if old is None:
            self.held += _SCORED + len(member)
        elif old == score:
            return
        else:
            self.order.remove((old, member))
        self.scores[member] = score
        self.order.add((score, member))
        if len(_lists(self.order)) != self._hidden:
            self._hide()
        if self.walks:
            self._tell_new() if old is None else self._tell(member)

    def discard(self, member: bytes) -> bool:
        score = self.scores.get(member)
        if score is None:
            return False
        self.order.remove((score, member))
        self._forget(member)
        return True

    def pop(self, place: int) -> tuple[float, bytes]:
        """Takes the one at a place in the order."""
        score, member = self.order.pop(place)
        self._forget(member)
        return score, member

    def remove_range(self, start: int, stop: int) -> None:
        """By places in the order."""
        gone = self.order[start:stop]
        del self.order[start:stop]
        self._hide()
        for _, member in gone:
            self._forget(member)

    def _hide(self) -> None:
        """Keeps the collector from looking into the order's lists. New ones come when one is split."""
        order: Any = self.order
        self._hidden = len(order._lists)
        _native.kv.untrack([order, order._maxes, order._index, order._lists, *order._lists])

    def _forget(self, member: bytes) -> None:
        del self.scores[member]
        self.held -= _SCORED + len(member)
        if self.walks:
            self._tell(member)

    def rank(self, member: bytes) -> int | None:
        score = self.scores.get(member)
        return None if score is None else int(self.order.index((score, member)))

    def update(self, pairs: Iterable[tuple[bytes, float]]) -> None:
        for member, score in pairs:
            self.put(member, score)

    def shed(self, count: int) -> None:
        # One list of the order goes at a time: one by one costs ten times that.
        lists = _lists(self.order)
        _shed(self.scores, len(lists.pop()) if lists else count)


Value = Hash | List | Set | SortedSet
KINDS: tuple[type[Value], ...] = (Hash, List, Set, SortedSet)
