"""`Config`: every section with its values, and where each of them comes from."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from verbena.config import keys
from verbena.config.keys import Key, section
from verbena.config.near import nearest
from verbena.config.network import Cluster, Network, Replication, Shards, ShardsRdma
from verbena.config.registry import Registry, RegistryRetention, RegistryS3
from verbena.config.service import Iwarp, Log, Metrics, Session, Tls
from verbena.config.store import Kv, KvPersistence


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

# The keys that something reads. The others are checked already, and take effect when their service comes.
IN_FORCE = frozenset(
    {
        *(
            f"network.{name}"
            for name in ("rdma_enabled", "rdma_device", "rdma_port", "rdma_gid_index", "rdma_fallback")
        ),
        *(
            f"network.rdma.{name}"
            for name in (
                *("max_connections", "connection_timeout_ms", "connection_retries", "retry_delay_ms"),
                *(
                    "max_mr_size",
                    "inline_threshold",
                    "send_queue_depth",
                    "recv_queue_depth",
                    "max_send_sge",
                    "max_recv_sge",
                ),
                *("cq_size", "poll_batch"),
                *("adaptive_polling", "busy_poll_us", "pin_memory", "huge_pages", "numa"),
                *("recv_buffer_pool_size", "recv_buffer_size"),
            )
        ),
        *(
            f"session.{name}"
            for name in (
                *("node_name", "listen_address", "listen_port", "secret", "secret_file"),
                *("heartbeat_interval_ms", "peer_timeout_ms", "max_message_size", "resume_timeout_s"),
                *("upgrade_delay_ms", "upgrade_delay_max_ms", "idle_timeout_s", "allow_drill"),
                *("capture_folder", "capture_headers_only"),
            )
        ),
        *(f"iwarp.{name}" for name in ("crc", "handshake_timeout_ms", "max_handshakes")),
        "metrics.listen",
        *(f"log.{name}" for name in ("level", "format")),
        *(
            f"replication.{name}"
            for name in (
                *("transport", "rdma_device", "replicaof", "primary_user", "primary_password"),
                *("replica_read_only", "backlog_size", "min_replicas_to_write", "min_replicas_max_lag"),
                *("rdma.use_rdma_write", "rdma.max_inline_size", "rdma.ring_size"),
            )
        ),
        *(f"shards.rdma.{field.name}" for field in fields(ShardsRdma)),
        *(
            f"tls.{name}"
            for name in ("certificate", "key", "ca", "revoked", "verify", "require_client_certificate")
        ),
        *(f"cluster.{field.name}" for field in fields(Cluster) if "section" not in field.metadata),
        *(f"cluster.rdma.{name}" for name in ("gossip_rdma", "migration_rdma")),
        *(f"kv.{field.name}" for field in fields(Kv) if "section" not in field.metadata),
        *(f"kv.persistence.{field.name}" for field in fields(KvPersistence)),
        *(
            f"registry.{field.name}"
            for field in fields(Registry)
            if "section" not in field.metadata and not field.name.startswith(("rdma_", "peers"))
        ),
        *(f"registry.retention.{field.name}" for field in fields(RegistryRetention)),
        *(f"registry.s3.{field.name}" for field in fields(RegistryS3)),
    }
)


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
