"""Optional parts that attach themselves to a server: persistence, replication, the cluster, frontends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verbena.kv.cluster import ClusterNode
    from verbena.kv.frontends.sessions import SessionFrontend
    from verbena.kv.frontends.valkey_rdma import RdmaListener
    from verbena.kv.replication.replication import Replication
    from verbena.kv.storage.persistence import Persistence


@dataclass
class Services:
    """`info_sections`: functions that return the fields of further INFO sections, by name. `on_tick`: called
    regularly on the engine's thread. `before_shutdown`: called by SHUTDOWN with True (SAVE), False (NOSAVE)
    or None; a CommandError prevents the shutdown. `shut_down`: ends the server."""

    shut_down: Callable[[], None]
    persistence: Persistence | None = None
    replication: Replication | None = None
    cluster: ClusterNode | None = None
    sessions: SessionFrontend | None = None
    rdma: RdmaListener | None = None
    info_sections: dict[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)
    on_tick: list[Callable[[], None]] = field(default_factory=list)
    before_shutdown: list[Callable[[bool | None], None]] = field(default_factory=list)
