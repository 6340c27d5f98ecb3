"""A set of byte offsets, stored as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Ranges:
    """Sorted ranges [start, stop) that never touch each other."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, start: int, stop: int) -> None:
        """Adds [start, stop), merged with the ranges that it touches."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def covers(self, start: int, stop: int) -> bool:
        """Whether all of [start, stop) is in the set."""
        place = bisect_right(self._starts, start) - 1
        return start >= stop or (place >= 0 and stop <= self._stops[place])

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of [start, stop) that are not in the set."""
        for known_start, known_stop in list(self):
            if known_stop <= start:
                continue
            if known_start >= stop:
                break
            if known_start > start:
                yield start, known_start
            start = known_stop
        if start < stop:
            yield start, stop

    def clear(self) -> None:
        self._starts.clear()
        self._stops.clear()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._stops, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"
