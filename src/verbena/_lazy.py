"""Names of a package that are imported when they are first used: a program pays for what it needs, and the
command line starts at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's __getattr__. `homes` says which module below it has each name; a module may be a name."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        value = module if homes[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return find
