"""Imports numpy on demand: the rest of Verbena works without it."""

from __future__ import annotations

import functools
from types import ModuleType

from verbena.errors import setup_error


@functools.cache
def numpy() -> ModuleType:
    """Returns the numpy module. Raises UnavailableError if it is not installed."""
    try:
        import numpy as module
    except ImportError as error:
        raise setup_error("numpy_missing", operation="use far memory", detail=str(error)) from error
    return module
