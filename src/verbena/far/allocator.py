"""First-fit allocation of offsets within one block of memory. Pure arithmetic: it never touches the bytes."""

from __future__ import annotations

from bisect import insort

ALIGNMENT = 4096  # one page, so that no two allocations share one


class FirstFit:
    """Allocates parts of [0, size), each at a multiple of ALIGNMENT."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)] if size else []  # (offset, length), sorted, never adjacent
        self._taken: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        return sum(length for _, length in self._free)

    @property
    def largest_free(self) -> int:
        return max((length for _, length in self._free), default=0)

    def allocate(self, length: int) -> int | None:
        """Returns the offset of at least `length` free bytes, or None if no free part is large enough."""
        wanted = max(1, -(-length // ALIGNMENT)) * ALIGNMENT
        for place, (offset, available) in enumerate(self._free):
            if available >= wanted or (available >= length > 0 and offset + available == self.size):
                taken = min(wanted, available)
                rest = [(offset + taken, available - taken)] if available > taken else []
                self._free[place : place + 1] = rest
                self._taken[offset] = taken
                return offset
        return None

    def free(self, offset: int) -> None:
        """Frees the allocation at `offset`. Raises KeyError if there is none."""
        insort(self._free, (offset, self._taken.pop(offset)))
        joined: list[tuple[int, int]] = []
        for start, length in self._free:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self._free = joined
