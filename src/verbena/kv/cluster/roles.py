"""Primaries and replicas of a cluster: a node follows whom the map says, and a replica takes the place of a
primary whose lease has ended, if it is the most advanced."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.election import successor

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode

log = logging.getLogger("verbena.kv.cluster")
_YIELD_S = 5.0


class Roles:
    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.positions: dict[str, int] = {}  # how far members are, as gossip tells
        self._yielding: asyncio.TimerHandle | None = None

    @property
    def _replication(self) -> Any:
        return getattr(self._node.server, "replication", None)

    @property
    def position(self) -> int:
        """How far this node's log has come: a replica's is its primary's."""
        replication = self._replication
        if replication is None:
            return 0
        return int(replication.link.offset if replication.link is not None else replication.written_offset)

    def lead_if(self, map: ClusterMap) -> None:
        """Before clients are served by a map: whoever leads by it does not follow any more."""
        replication = self._replication
        if replication is not None and replication.link is not None and self._node.id not in map.replicas:
            log.info("this node leads from epoch %d on", map.epoch)
            replication.lead()

    def follow_if(self, map: ClusterMap) -> None:
        """Afterwards: whoever does not lead by it follows, and those who waited are sent to whoever does."""
        replication, primary = self._replication, map.replicas.get(self._node.id)
        if replication is not None and primary is not None:
            member, link = map.members[primary], replication.link
            if link is None or (link.host, link.port) != (member.host, member.port):
                log.info("this node follows %s from epoch %d on", member.address, map.epoch)
                replication.follow(member.host, member.port)
        if self._yielding is not None and not map.slots_of(self._node.id):
            self._take_back()

    async def watch(self) -> None:
        """A replica's watch over its primary's lease."""
        node = self._node
        while True:
            await asyncio.sleep(node.settings.node_timeout_s / 8)
            primary = node.map.replicas.get(node.id)
            if primary is None or self._replication is None:
                continue
            try:
                holders = await node.store.leaseholders()
                known = {**self.positions, node.id: self.position}
                if successor(node.map, primary, holders, known) == node.id:
                    log.warning("the lease of primary %s has ended: taking its place", primary)
                    await node.promote(without_lease=primary)
            except VerbenaError as error:
                log.warning("the primary's lease could not be looked at: %s", error.what)

    # A planned change: CLUSTER FAILOVER

    def give_way(self) -> int:
        """At the primary: nothing is written from now on, for a while. How far its log has come."""
        node = self._node
        slots = [slot for found in node.map.slots_of(node.id) for slot in found]
        node.gate.fence(slots)
        node.server.engine.commit()
        self._yielding = node.loop.call_later(_YIELD_S, self._take_back)
        return self.position

    def _take_back(self) -> None:
        if self._yielding is not None:
            self._yielding.cancel()
            self._yielding = None
        self._node.gate.open(range(16384))

    async def catch_up(self, position: int) -> None:
        """At the replica: until it has what the primary had."""
        ends = self._node.loop.time() + _YIELD_S / 2
        while self.position < position:
            if self._node.loop.time() > ends:
                detail = f"{position - self.position} bytes of the log are missing"
                raise setup_error("not_ready", operation="fail over", detail=detail)
            await asyncio.sleep(0.002)
