"""Views of a program's buffers as contiguous bytes, with errors that name the argument and the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from verbena.transport.memory.owners import is_array

if TYPE_CHECKING:
    from typing_extensions import Buffer


def contiguous_bytes(
    buffer: Buffer, operation: str, *, argument: str = "buffer", writable: bool = False
) -> memoryview:
    """Returns the memory of `buffer` as bytes. TypeError if it has no memory to share, ValueError if it has
    gaps, BufferError if it is read-only and must be `writable`."""
    view: memoryview | None = None
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        view = _view_of_array(buffer)
        if view is None:
            kind = type(buffer).__name__
            raise TypeError(
                f"{operation}: {argument} is {kind}, not a bytes-like object such as bytes, bytearray or a "
                "numpy array"
            ) from error
    if not view.c_contiguous:
        raise ValueError(
            f"{operation}: {argument} is not C-contiguous: pass numpy.ascontiguousarray({argument})"
            + (", and copy the result back" if writable else "")
        )
    if writable and view.readonly:
        raise BufferError(f"{operation}: {argument} is read-only, and would be written to")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


@contextlib.contextmanager
def held(buffer: Buffer) -> Iterator[None]:
    """Keeps the memory of `buffer` in place: a bytearray cannot be resized meanwhile."""
    if is_array(buffer):  # which cannot be resized while it is referenced
        yield
    else:
        with memoryview(buffer):
            yield


def _view_of_array(array: Any) -> memoryview | None:
    """Returns the memory of a numpy array of a type that the buffer protocol lacks, such as bfloat16."""
    if not is_array(array):
        return None
    if not array.flags.c_contiguous:
        return memoryview(bytearray(2))[::2]
    return memoryview(array.reshape(-1).view("u1")) if array.nbytes else memoryview(bytearray())
