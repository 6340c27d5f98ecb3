"""The types of values except strings, which the engine stores itself."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar

from sortedcontainers import SortedList

from verbena import _native

# Estimated memory: of a small collection, and of each element, in bytes.
_EMPTY_DICT = sys.getsizeof({b"": b""})
_EMPTY_SORTED = _EMPTY_DICT + 700  # a SortedList consists of several lists
_BYTES_OBJECT = 40  # overhead of a bytes object: its header and the allocator's rounding
_DICT_ENTRY = 45  # an entry of a dict, which is between one and two thirds full
_PAIR = _DICT_ENTRY + 2 * _BYTES_OBJECT
_MEMBER = _DICT_ENTRY + _BYTES_OBJECT
_SAMPLED = 40  # an entry of Set.drawn, and its index
_SCORED = _MEMBER + sys.getsizeof(0.0) + sys.getsizeof((0.0, b"")) + 8


_MAX_SET_NAMES = 1 << 15  # so that growing and scanning one set stays short


class Changes:
    """Records changes of a collection: the names of changed and removed elements, and the number of changes.
    New elements are only counted, since a dict has them at its end."""

    __slots__ = ("_full", "_names", "count")

    def __init__(self) -> None:
        self._full: list[set[bytes]] = []
        self._names: set[bytes] = set()
        self.count = 0

    def record(self, names: Collection[bytes]) -> None:
        self._names.update(names)
        self.count += len(names)
        if len(self._names) >= _MAX_SET_NAMES:
            self._full.append(self._names)
            self._names = set()

    def take(self) -> set[bytes]:
        """Removes and returns some of the names; an empty set if none are left."""
        if self._full:
            return self._full.pop()
        names, self._names = self._names, set()
        return names


class Walkable:
    """A collection that reports its changes, for copies that are made in steps."""

    __slots__ = ()
    walks: tuple[Changes, ...]

    def begin_walk(self) -> Changes:
        """Starts to record changes. Call end_walk() with the result when the copy is finished."""
        changes = Changes()
        self.walks = (*self.walks, changes)  # type: ignore[misc]  # subclasses have the slot
        return changes

    def end_walk(self, changes: Changes) -> None:
        self.walks = tuple(other for other in self.walks if other is not changes)  # type: ignore[misc]

    def _record_changed(self, *names: bytes) -> None:
        for recorder in self.walks:
            recorder.record(names)

    def _record_new(self, count: int = 1) -> None:
        for recorder in self.walks:
            recorder.count += count


def _free_some(elements: dict[bytes, Any], count: int) -> None:
    for _ in range(min(count, len(elements))):
        dict.popitem(elements)


# free_some() frees an unreferenced collection in steps of about `count` elements; `memory_bytes` is not
# updated then.
class Hash(Walkable, dict[bytes, bytes]):
    """Fields and their values. `memory_bytes` is the estimated memory in bytes, updated by every change."""

    TYPE: ClassVar[str] = "hash"
    __slots__ = ("__weakref__", "memory_bytes", "walks")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] | dict[bytes, bytes] = ()) -> None:
        super().__init__(pairs)
        self.walks = ()
        self.memory_bytes = (
            _EMPTY_DICT + _PAIR * len(self) + sum(map(len, self)) + sum(map(len, self.values()))
        )

    def __setitem__(self, field: bytes, content: bytes) -> None:
        old = self.get(field)
        self.memory_bytes += len(content) + (_PAIR + len(field) if old is None else -len(old))
        super().__setitem__(field, content)
        if self.walks:
            self._record_new() if old is None else self._record_changed(field)

    def update(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:  # type: ignore[override]
        new = dict(pairs)
        changed = self.keys() & new.keys()
        for field in changed:
            self.memory_bytes -= _PAIR + len(field) + len(self[field])
        self.memory_bytes += _PAIR * len(new) + sum(map(len, new)) + sum(map(len, new.values()))
        super().update(new)
        if self.walks:
            self._record_changed(*changed)
            self._record_new(len(new) - len(changed))

    def discard(self, field: bytes) -> bool:
        """Removes a field. Returns whether it existed."""
        old = super().pop(field, None)
        if old is None:
            return False
        self.memory_bytes -= _PAIR + len(field) + len(old)
        if self.walks:
            self._record_changed(field)
        return True

    def __delitem__(self, field: bytes) -> None:
        if not self.discard(field):
            raise KeyError(field)

    def free_some(self, count: int) -> None:
        _free_some(self, count)


# Native, since a copy in steps needs direct access to any position.
List = _native.kv.List


class Set(Walkable, dict[bytes, int | None]):
    """Members; change them with add() and discard() only. After the first random_member() from a large set,
    `sample_order` lists the members in any order and each dict value is the index there, so that draws take
    constant time. `memory_bytes` is the estimated memory in bytes."""

    TYPE: ClassVar[str] = "set"
    __slots__ = ("__weakref__", "memory_bytes", "sample_order", "walks")

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        super().__init__(dict.fromkeys(members))
        self.sample_order: list[bytes] | None = None
        self.walks = ()
        self.memory_bytes = _EMPTY_DICT + _MEMBER * len(self) + sum(map(len, self))

    def add(self, member: bytes) -> bool:
        """Adds a member. Returns whether it is new."""
        if member in self:
            return False
        self.memory_bytes += _MEMBER + len(member)
        if self.sample_order is None:
            self[member] = None
        else:
            self[member] = len(self.sample_order)
            self.sample_order.append(member)
            self.memory_bytes += _SAMPLED
        if self.walks:
            self._record_new()
        return True

    def discard(self, member: bytes) -> bool:
        """Removes a member. Returns whether it existed."""
        place = self.pop(member, -1)
        if place == -1:
            return False
        self.memory_bytes -= _MEMBER + len(member)
        if self.sample_order is not None and place is not None:
            self.memory_bytes -= _SAMPLED
            last = self.sample_order.pop()
            if last != member:
                self.sample_order[place] = last
                self[last] = place
        if self.walks:
            self._record_changed(member)
        return True

    def random_member(self) -> bytes:
        """Returns a random member and keeps it. The set must not be empty."""
        if self.sample_order is None:
            if len(self) <= 64:
                return next(islice(self, random.randrange(len(self)), None))
            self.sample_order = list(self)
            self.update(zip(self.sample_order, range(len(self.sample_order)), strict=True))
            self.memory_bytes += _SAMPLED * len(self)
        return random.choice(self.sample_order)

    def free_some(self, count: int) -> None:
        _free_some(self, count)
        if self.sample_order:
            del self.sample_order[-count:]


def _lists(order: SortedList[tuple[float, bytes]]) -> list[list[tuple[float, bytes]]]:
    return order._lists  # type: ignore[attr-defined,no-any-return]  # not in the stubs


class SortedSet(Walkable):
    """Members with scores, ordered by score, then by member. Other code may read `scores` and `order`, but
    not change them. `memory_bytes` is the estimated memory in bytes."""

    TYPE: ClassVar[str] = "zset"
    __slots__ = ("__weakref__", "_untracked", "memory_bytes", "order", "scores", "walks")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList[tuple[float, bytes]] = SortedList()
        self._untracked = 0  # number of lists of `order` that _untrack() has untracked
        self.walks = ()
        self.memory_bytes = _EMPTY_SORTED

    @classmethod
    def of(cls, scores: dict[bytes, float]) -> SortedSet:
        made = cls()
        made.scores = {member: score + 0.0 for member, score in scores.items()}
        made.order.update((score, member) for member, score in made.scores.items())
        made._untrack()
        made.memory_bytes += _SCORED * len(made) + sum(map(len, made.scores))
        return made

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self.scores

    def __iter__(self) -> Iterator[bytes]:
        return (member for _, member in self.order)

    def put(self, member: bytes, score: float) -> None:
        score += 0.0  # stores -0.0 as 0.0
        old = self.scores.get(member)
        if old is None:
            self.memory_bytes += _SCORED + len(member)
        elif old == score:
            return
        else:
            self.order.remove((old, member))
        self.scores[member] = score
        self.order.add((score, member))
        if len(_lists(self.order)) != self._untracked:
            self._untrack()
        if self.walks:
            self._record_new() if old is None else self._record_changed(member)

    def discard(self, member: bytes) -> bool:
        score = self.scores.get(member)
        if score is None:
            return False
        self.order.remove((score, member))
        self._forget(member)
        return True

    def pop(self, place: int) -> tuple[float, bytes]:
        """Removes and returns the pair (score, member) at a rank."""
        score, member = self.order.pop(place)
        self._forget(member)
        return score, member

    def remove_range(self, start: int, stop: int) -> None:
        """Removes the members with ranks from `start` to before `stop`."""
        gone = self.order[start:stop]
        del self.order[start:stop]
        self._untrack()
        for _, member in gone:
            self._forget(member)

    def _untrack(self) -> None:
        """Excludes the lists of `order` from garbage collection, which would traverse them. Call it again
        when their number has changed, since a split creates a new list."""
        order: Any = self.order
        self._untracked = len(order._lists)
        _native.kv.untrack([order, order._maxes, order._index, order._lists, *order._lists])

    def _forget(self, member: bytes) -> None:
        del self.scores[member]
        self.memory_bytes -= _SCORED + len(member)
        if self.walks:
            self._record_changed(member)

    def rank(self, member: bytes) -> int | None:
        score = self.scores.get(member)
        return None if score is None else int(self.order.index((score, member)))

    def update(self, pairs: Iterable[tuple[bytes, float]]) -> None:
        for member, score in pairs:
            self.put(member, score)

    def free_some(self, count: int) -> None:
        # Frees one list of `order` per step: element by element costs ten times as much.
        lists = _lists(self.order)
        _free_some(self.scores, len(lists.pop()) if lists else count)


Value = Hash | List | Set | SortedSet
KINDS: tuple[type[Value], ...] = (Hash, List, Set, SortedSet)
