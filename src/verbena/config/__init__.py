"""The configuration: `verbena.toml`, VERBENA_… variables and flags, checked against one table of keys.
The table consists of the dataclasses of the sections (network.py, service.py, store.py, registry.py); parser,
flags, reference page and sample are generated from it. May depend on verbena.errors only."""

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
