"""Whose memory a buffer is: what must be held so that its registration can be kept for the next transfer.
Holding keeps an object from being resized or closed, so only those are held that hardly ever are."""

from __future__ import annotations

from typing import Any


def owner_of(buffer: Any) -> object | None:
    """The numpy array that owns the memory, also of its views; bytes themselves. None: not to be held, as
    with bytearrays, memoryviews, and arrays on memory of something else (a file, shared memory)."""
    if type(buffer) is bytes:
        return buffer
    while is_array(buffer):
        if buffer.flags.owndata:
            return buffer  # type: ignore[no-any-return]
        buffer = buffer.base
    return None


def is_array(value: Any) -> bool:
    """Whether it is a numpy array; numpy itself is not needed."""
    return any(kind.__module__ == "numpy" and kind.__name__ == "ndarray" for kind in type(value).__mro__)
