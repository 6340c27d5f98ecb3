"""What a node reports of its cluster: the fields of CLUSTER INFO."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from verbena.shards.liveness import Health

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode


def info(node: ClusterNode) -> dict[str, Any]:
    """Returns the fields of CLUSTER INFO. The time depends on the number of ranges of slots, not of slots."""
    map, slots = node.map, Counter[str]()
    for found, owner in map.owners:
        slots[owner] += len(found)
    health = {owner: node.gossip.health(owner) for owner in slots}
    given = sum(slots.values())
    failed, suspected = (
        sum(count for owner, count in slots.items() if health[owner] is state)
        for state in (Health.FAILED, Health.SUSPECTED)
    )
    return {
        "cluster_state": "ok" if map.is_covered and not failed else "fail",
        "cluster_slots_assigned": given,
        "cluster_slots_ok": given - failed - suspected,
        "cluster_slots_pfail": suspected,
        "cluster_slots_fail": failed,
        "cluster_known_nodes": len(map.members),
        "cluster_size": len(slots),
        "cluster_current_epoch": map.epoch,
        "cluster_my_epoch": map.epoch,
        "cluster_stats_messages_sent": node.gossip.messages["sent"],
        "cluster_stats_messages_received": node.gossip.messages["received"],
        "total_cluster_links_buffer_limit_exceeded": 0,
    }
