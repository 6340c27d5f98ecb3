"""The settings of replication, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verbena.config import Config, read_secret
from verbena.transport import Settings as NodeSettings
from verbena.transport.configured import settings_from


@dataclass(frozen=True)
class Settings:
    """The names are those of `[replication]`."""

    replicaof: str = ""
    primary_user: str = ""
    primary_password: str = ""
    use_rdma_write: bool = True
    max_inline_size: int = 512
    ring_size: int = 4 << 20

    @classmethod
    def of(cls, config: Config) -> Settings:
        keys = config.replication
        return cls(
            replicaof=keys.replicaof,
            primary_user=keys.primary_user,
            primary_password=read_secret(config, "replication.primary_password").reveal(),
            use_rdma_write=keys.rdma.use_rdma_write,
            max_inline_size=keys.rdma.max_inline_size,
            ring_size=keys.rdma.ring_size,
        )


def node_settings(config: Config) -> NodeSettings:
    """Settings of the node that connects to the primary: the wires that `replication.transport` allows."""
    settings, keys = settings_from(config), config.replication
    wires = {"tcp": ("iwarp",), "quic": ("quic",)}.get(keys.transport, settings.wires)
    devices = {} if keys.rdma_device == "auto" else {"ibv": keys.rdma_device}
    return replace(settings, wires=wires, devices=devices, metrics_listen="", capture_folder="")
