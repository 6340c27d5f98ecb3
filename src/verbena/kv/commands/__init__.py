"""Commands in Python, one function each, by the data type that they are about."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Declares all of them."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
