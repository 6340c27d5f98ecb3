"""`Config`: every section with its values, and where each of them comes from."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verbena.config import keys
from verbena.config.keys import Key, section
from verbena.config.near import nearest
from verbena.config.network import Cluster, Network, Replication, Shards
from verbena.config.registry import Registry
from verbena.config.service import Iwarp, Log, Metrics, Session, Tls
from verbena.config.store import Kv


@dataclass(frozen=True)
class Source:
    """Where a value comes from; `str()` says it in a few words."""

    kind: Literal["default", "file", "environment", "flag", "program"]
    name: str = ""  # of the file, the variable or the flag
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.name}:{self.line}" if self.line else self.name
        return place or self.kind


DEFAULT = Source("default")


@dataclass(frozen=True)
class Config:
    """The whole configuration. `Config()` has every default; `load()` reads file, environment and flags."""

    network: Network = section(Network)
    replication: Replication = section(Replication)
    cluster: Cluster = section(Cluster)
    shards: Shards = section(Shards)
    session: Session = section(Session)
    tls: Tls = section(Tls)
    iwarp: Iwarp = section(Iwarp)
    metrics: Metrics = section(Metrics)
    log: Log = section(Log)
    kv: Kv = section(Kv)
    registry: Registry = section(Registry)

    file: Path | None = field(default=None, compare=False)
    """The file that was read, if there was one."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What is allowed but hardly meant, for a person to read."""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    """Where each value that was set comes from."""

    def __getitem__(self, path: str) -> Any:
        """The value of a key by its full name: `config["network.rdma.cq_size"]`."""
        require_key(path)
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def source_of(self, path: str) -> Source:
        """Where a key's value comes from: the default, a file's line, a variable or a flag."""
        require_key(path)
        return self.sources.get(path, DEFAULT)

    def was_set(self, path: str) -> bool:
        """Whether somebody has chosen a key's value, be it the default's."""
        return path in self.sources or self[path] != KEYS[path].default


KEYS: Mapping[str, Key] = types.MappingProxyType({key.path: key for key in keys.rows(Config)})
SECTIONS: Mapping[str, type[keys.Section]] = types.MappingProxyType(dict(keys.sections(Config)))


def require_key(path: str) -> Key:
    """The row of a key by its full name; KeyError, with the nearest, if there is none."""
    if path not in KEYS:
        near = nearest(path, KEYS)
        raise KeyError(f"there is no key {path!r}" + (f"; did you mean {near!r}?" if near else ""))
    return KEYS[path]


def build(values: Mapping[str, Any], **rest: Any) -> Config:
    """A Config with `values` by full name, and defaults for the others."""

    def make(cls: type[Any], prefix: str) -> Any:
        inner = {
            name.removeprefix(prefix): make(section_class, f"{name}.")
            for name, section_class in SECTIONS.items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }
        own = {
            path.removeprefix(prefix): value
            for path, value in values.items()
            if path.startswith(prefix) and "." not in path.removeprefix(prefix)
        }
        return cls(**inner, **own, **(rest if cls is Config else {}))

    config: Config = make(Config, "")
    return config
