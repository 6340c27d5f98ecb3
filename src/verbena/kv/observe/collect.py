"""Collects the state of a store on the engine's thread. Everything here takes the same time for any number of
keys and clients: clients wait meanwhile."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any

from verbena import __version__
from verbena.kv.observe.snapshot import ClusterState, ProcessState, ReplicaState, StoreSnapshot
from verbena.kv.server import info

if TYPE_CHECKING:
    from verbena.kv.cluster import ClusterNode
    from verbena.kv.frontends.valkey_rdma import RdmaListener
    from verbena.kv.replication.replication import Replication
    from verbena.kv.server.server import Server
    from verbena.kv.server.slowlog import SlowLog

# Sections of INFO whose cost does not depend on the number of clients.
_SECTIONS = (
    info.server_section,
    info.memory_of_store,
    info.persistence_section,
    info.stats_section,
    info.replication_section,
    info.cpu_section,
    info.cluster_section,
)


def process_state(server: Server, *, is_up: bool) -> ProcessState:
    """Returns what is known without the engine. From any thread."""
    started_s = server.stats.started
    return ProcessState(
        is_up, started_s, int(time.time() - started_s), __version__, platform.python_version()
    )


def collect(server: Server) -> StoreSnapshot:
    """Returns the state of the store. On the engine's thread."""
    engine, services = server.engine.counters(), server.services
    fields: dict[str, Any] = {}
    for section in _SECTIONS:
        fields |= section(server)
    replication = services.replication
    fields |= {
        "connected_clients": engine["clients"] - (replication.followers if replication is not None else 0),
        "maxclients": server.clients.max_clients,
        "blocked_clients": len(server.blocking),
        "tracking_clients": server.clients.tracking.clients,
    }
    cluster = services.cluster
    sessions = services.sessions.counters() if services.sessions is not None else {}
    return StoreSnapshot(
        fields=fields,
        databases=tuple((one.index, len(one), one.volatile_keys) for one in server.databases),
        commands={info.shown_name(name): stats for name, stats in server.stats.all_commands().items()},
        errors=server.stats.all_errors(),
        clients=_clients(engine, sessions.get("clients", 0), services.rdma),
        sessions=sessions,
        slowlog=_slowlog(server.stats.slowlog),
        replicas=_replicas(replication) if replication is not None else (),
        cluster=_cluster(cluster) if cluster is not None else None,
    )


def _clients(engine: dict[str, int], sessions: int, rdma: RdmaListener | None) -> dict[str, int]:
    """Returns the numbers of clients by frontend. The rest are the store's own clients, which apply logs."""
    counts = {kind: engine[f"{kind}_clients"] for kind in ("tcp", "tls", "unix")}
    counts |= {"session": sessions, "rdma": rdma.clients if rdma is not None else 0}
    return counts | {"internal": engine["clients"] - sum(counts.values())}


def _slowlog(slowlog: SlowLog) -> dict[str, float]:
    entries = slowlog.entries
    if not entries:
        return {"length": 0}
    return {"length": len(entries), "last_id": entries[0].number, "last_s": entries[0].us / 1e6}


def _replicas(replication: Replication) -> tuple[ReplicaState, ...]:
    end = replication.server.engine.backlog_counters()["offset"]
    states = []
    for replica in list(replication.replicas):
        row = replica.sender.counters()
        lag_bytes = max(0, end - row["offset"])
        silent_s = row["silent_ns"] / 1e9
        states.append(
            ReplicaState(
                replica.host, str(replica.port), replica.state(row), row["offset"], lag_bytes, silent_s
            )
        )
    return tuple(states)


def _cluster(node: ClusterNode) -> ClusterState:
    map = node.map
    health = [node.gossip.health(id).value for id in map.members]
    moves = list(map.moves.values())
    return ClusterState(
        fields=node.info(),
        slots_owned=sum(len(slots) for slots in map.slots_of(node.id)),
        members={state: health.count(state) for state in ("alive", "pfail", "fail")},
        moves={
            "out": sum(move.source == node.id for move in moves),
            "in": sum(move.target == node.id for move in moves),
        },
        moves_copied_bytes=node.moves.copied_bytes,
        moves_ended=dict(node.moves.outcomes),
        lease_remaining_s=node.lease_remaining_s,
        refused_messages=node.refused_messages,
    )
