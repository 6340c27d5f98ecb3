"""Options of the ibv wire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class IbvOptions:
    """Options of an ibv context, for open_device(): where its managed connections start from and listen.
    None: any port, and the entry of the GID table that other hosts reach best. InfiniBand and iWARP do not
    use the GID index, since they address connections differently."""

    port: int | None = None
    gid_index: int | None = None
