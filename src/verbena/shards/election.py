"""Who takes a silent primary's place: the most advanced of its replicas that are there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set

from verbena.shards.cluster_map import ClusterMap


def successor(map: ClusterMap, primary: str, holders: Set[str], positions: Mapping[str, int]) -> str | None:
    """`holders`: who has a lease. `positions`: how far each replica has followed, as far as is known. None:
    the primary is there, nobody can take its place, or a replica that is there has not said how far it is."""
    if primary in holders:
        return None
    there = [replica for replica in map.replicas_of(primary) if replica in holders]
    if not there or any(replica not in positions for replica in there):
        return None
    return min(there, key=lambda replica: (-positions[replica], replica))
