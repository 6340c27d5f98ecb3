"""Metrics of the cluster, as this node sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verbena.kv.observe.rows import Kind, StoreMetric, by_label, of_cluster, of_info
from verbena.kv.observe.snapshot import ClusterState, StoreSnapshot
from verbena.transport.observe.metrics.metric import Metric, Sample

Read = Callable[[ClusterState], Iterable[Sample]]


def _of_state(
    name: str, kind: Kind, help: str, read: Read, *, labels: tuple[str, ...] = (), source: str
) -> StoreMetric:
    """A metric that only a node of a cluster has."""

    def read_snapshot(now: StoreSnapshot) -> Iterable[Sample]:
        return read(now.cluster) if now.cluster is not None else []

    return Metric(name, kind, labels, help, read_snapshot, source)


def _lease(cluster: ClusterState) -> Iterable[Sample]:
    remaining_s = cluster.lease_remaining_s
    return [] if remaining_s is None else [((), round(remaining_s, 3))]


ROWS: tuple[StoreMetric, ...] = (
    of_info("redis_cluster_enabled", "gauge", "cluster_enabled", "1 if the store is a node of a cluster."),
    of_cluster(
        "redis_cluster_state",
        "gauge",
        "cluster_state",
        "1 if every slot has an owner and none has failed, else 0.",
    ),
    of_cluster("redis_cluster_slots_assigned", "gauge", "cluster_slots_assigned", "Slots with an owner."),
    of_cluster("redis_cluster_slots_ok", "gauge", "cluster_slots_ok", "Slots whose owner is alive."),
    of_cluster("redis_cluster_slots_pfail", "gauge", "cluster_slots_pfail", "Slots of suspected members."),
    of_cluster("redis_cluster_slots_fail", "gauge", "cluster_slots_fail", "Slots of failed members."),
    of_cluster("redis_cluster_known_nodes", "gauge", "cluster_known_nodes", "Members."),
    of_cluster("redis_cluster_size", "gauge", "cluster_size", "Members that own slots."),
    of_cluster("redis_cluster_current_epoch", "gauge", "cluster_current_epoch", "Epoch of the map."),
    of_cluster(
        "redis_cluster_messages_sent_total",
        "counter",
        "cluster_stats_messages_sent",
        "Gossip messages sent and answered.",
    ),
    of_cluster(
        "redis_cluster_messages_received_total",
        "counter",
        "cluster_stats_messages_received",
        "Messages received from other members.",
    ),
    _of_state(
        "verbena_cluster_messages_refused_total",
        "counter",
        "Messages refused because their sender had no right to send them.",
        lambda cluster: [((), cluster.refused_messages)],
        source="INFO `cluster_messages_refused`",
    ),
    _of_state(
        "verbena_cluster_slots_owned",
        "gauge",
        "Slots of this node.",
        lambda cluster: [((), cluster.slots_owned)],
        source="cluster map",
    ),
    _of_state(
        "verbena_cluster_members",
        "gauge",
        "Members by health: `alive`, `pfail` (suspected by this node) or `fail`.",
        lambda cluster: by_label(dict(cluster.members)),
        labels=("health",),
        source="gossip",
    ),
    _of_state(
        "verbena_cluster_moves",
        "gauge",
        "Slot moves in progress: `out` of this node or `in`.",
        lambda cluster: by_label(dict(cluster.moves)),
        labels=("direction",),
        source="cluster map",
    ),
    _of_state(
        "verbena_cluster_moves_copied_bytes",
        "gauge",
        "What the targets have acknowledged of the moves in progress out of this node.",
        lambda cluster: [((), cluster.moves_copied_bytes)],
        source="CLUSTER MOVES",
    ),
    _of_state(
        "verbena_cluster_moves_ended_total",
        "counter",
        "Slot moves out of this node that ended: `done` or `rolled_back`.",
        lambda cluster: by_label(dict(cluster.moves_ended)),
        labels=("outcome",),
        source="CLUSTER MOVES",
    ),
    _of_state(
        "verbena_cluster_lease_remaining_seconds",
        "gauge",
        "Until the end of this node's lease; negative: it has ended, and the node serves no command.",
        _lease,
        source="lease",
    ),
)
