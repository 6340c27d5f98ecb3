"""Starts write-back of a file range without waiting, so that the final sync has little left to do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: starts write-back without waiting


def _find() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None  # not in this C library; the final sync does all the work
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find()


def start(fd: int, offset: int, length: int) -> None:
    """Starts write-back, as a hint: errors are ignored, because the final sync reports them."""
    if _sync_file_range is not None and length:
        _sync_file_range(fd, offset, length, _WRITE)
