"""The configuration: `verbena.toml`, VERBENA_… variables and flags, checked against one table of keys.
The table is the sections' dataclasses (`network.py`, `service.py`); parsing, the command line, the reference
page and the sample are made from it. Depends on `verbena.errors` alone, so that every layer can use it."""

from verbena.config.kinds import Secret
from verbena.config.load import load, loads, override, places, read_secret
from verbena.config.model import KEYS, SECTIONS, Config, Source

__all__ = [
    "KEYS",
    "SECTIONS",
    "Config",
    "Secret",
    "Source",
    "load",
    "loads",
    "override",
    "places",
    "read_secret",
]
