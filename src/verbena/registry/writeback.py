"""Starts writing a stretch of a file to disk without waiting, so that the sync at the end finds little
left to do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: start, do not wait


def _find() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None  # another C library: the final sync does it all
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find()


def start(fd: int, offset: int, length: int) -> None:
    """A hint: what goes wrong with the file, the final sync says."""
    if _sync_file_range is not None and length:
        _sync_file_range(fd, offset, length, _WRITE)
