"""Finds the object that owns the memory of a buffer, so that its registration can be cached.
A cached registration keeps a reference, which prevents resizing: only objects that are rarely resized
qualify."""

from __future__ import annotations

from typing import Any


def owner_of(buffer: Any) -> object | None:
    """Returns the numpy array that owns the memory of an array or view, or the bytes object. None for
    bytearrays, memoryviews and arrays on foreign memory (a file, shared memory): their registration is not
    cached."""
    if type(buffer) is bytes:
        return buffer
    while is_array(buffer):
        if buffer.flags.owndata:
            return buffer  # type: ignore[no-any-return]
        buffer = buffer.base
    return None


def is_array(value: Any) -> bool:
    """Returns whether it is a numpy array; numpy itself is not needed."""
    return any(kind.__module__ == "numpy" and kind.__name__ == "ndarray" for kind in type(value).__mro__)
