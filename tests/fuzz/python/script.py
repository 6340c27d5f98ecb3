"""The bytes of a fuzzer, read as decisions, and the bounds of what one input may cost. As fuzz.h for C++."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator


class Input:
    """Takes decisions from the front; zeroes when the bytes have run out."""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    @property
    def empty(self) -> bool:
        return not self._left

    def byte(self) -> int:
        return self.number(1)

    def number(self, size_bytes: int) -> int:
        return int.from_bytes(self.take(size_bytes).ljust(size_bytes, b"\0"), "big")

    def take(self, size: int) -> bytes:
        taken, self._left = bytes(self._left[:size]), self._left[size:]
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._left))


def require(holds: object, what: str) -> None:
    """Ends the run if a rule does not hold. Not `assert`, which -O removes."""
    if not holds:
        raise AssertionError(f"does not hold: {what}")


@contextlib.contextmanager
def bounded_memory(limit_bytes: int) -> Iterator[None]:
    """Fails if Python allocates more than `limit_bytes` at once. A caller that runs many inputs starts
    tracemalloc itself: each start of it costs memory for ever."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield
        taken = tracemalloc.get_traced_memory()[1] - before
        require(taken <= limit_bytes, f"{taken} bytes of memory are at most {limit_bytes}")
    finally:
        if not was_tracing:
            tracemalloc.stop()
