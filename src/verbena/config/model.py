"""`Config`: the values of all sections, and the source of each value."""

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
    """The source of a value; str() returns a short description, such as "verbena.toml:12"."""

    kind: Literal["default", "file", "environment", "flag", "program"]
    name: str = ""  # the file, the variable or the flag
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.name}:{self.line}" if self.line else self.name
        return place or self.kind


DEFAULT = Source("default")


@dataclass(frozen=True)
class Config:
    """The whole configuration. Config() has all defaults; load() reads file, environment and flags."""

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
    """The file that was read, or None."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """Messages about values that are allowed but probably not intended."""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    """The source of each value that was set."""

    def __getitem__(self, path: str) -> Any:
        """Returns the value of a key by its full name: `config["network.rdma.cq_size"]`. KeyError if there is
        no such key."""
        require_key(path)
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def source_of(self, path: str) -> Source:
        """Returns the source of a key's value: default, file and line, variable, flag or program. KeyError if
        there is no such key."""
        require_key(path)
        return self.sources.get(path, DEFAULT)

    def was_set(self, path: str) -> bool:
        """Whether a key was set by any source, even to its default."""
        return path in self.sources or self[path] != KEYS[path].default


KEYS: Mapping[str, Key] = types.MappingProxyType({key.path: key for key in keys.rows(Config)})
SECTIONS: Mapping[str, type[keys.Section]] = types.MappingProxyType(dict(keys.sections(Config)))


def require_key(path: str) -> Key:
    """Returns the row of a key by its full name. KeyError, with the most similar name, if there is none."""
    if path not in KEYS:
        near = nearest(path, KEYS)
        raise KeyError(f"there is no key {path!r}" + (f"; did you mean {near!r}?" if near else ""))
    return KEYS[path]


def build(values: Mapping[str, Any], **rest: Any) -> Config:
    """Returns a Config with `values` (by full name) and defaults for the other keys."""

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
