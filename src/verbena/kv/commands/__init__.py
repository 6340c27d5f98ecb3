"""Commands in Python, one function each: `data` has those on keys and values, `server` those on the server.
The modules of this package are shared by all commands: declaration, arguments, replies.
They may not depend on the rest of verbena.kv."""

from __future__ import annotations

import importlib
import pkgutil

from verbena.kv.commands import data, server


def load() -> None:
    """Imports every module of commands. The import declares them in COMMANDS."""
    for package in (data, server):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
