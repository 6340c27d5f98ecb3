"""The received byte ranges of a blob: disjoint, sorted, merged when they touch."""

from __future__ import annotations

import bisect


class Extents:
    def __init__(self, prefix: int = 0) -> None:
        self._starts: list[int] = [0] if prefix else []
        self._ends: list[int] = [prefix] if prefix else []

    def add(self, start: int, end: int) -> None:
        """Adds the range [start, end)."""
        if start >= end:
            return
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    @property
    def prefix(self) -> int:
        """The number of bytes received without a gap from offset 0."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    def gaps(self, size: int) -> list[tuple[int, int]]:
        """Returns the missing ranges of [0, size)."""
        edges = [0, *(edge for pair in zip(self._starts, self._ends, strict=True) for edge in pair), size]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start, min(end, size)) for start, end in pairs if start < min(end, size)]
