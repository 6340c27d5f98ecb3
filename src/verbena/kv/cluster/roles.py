"""Primaries and replicas of a cluster: a node follows whom the map says, and a replica takes the place of a
primary whose lease has ended, if it is the most advanced."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.election import Standing, successor

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode

log = logging.getLogger("verbena.kv.cluster")
_YIELD_S = 5.0


class Roles:
    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.positions: dict[str, int] = {}  # how far members are, as gossip tells: for those who look
        self.is_yielding = False
        self._standing: Standing | None = None  # the primary's lease has ended, and nobody is followed
        self._patience: asyncio.TimerHandle | None = None

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
        if replication is None or self._node.id in map.replicas:
            return
        if replication.link is not None:
            log.info("this node leads from epoch %d on", map.epoch)
            self._standing = replication.term = None
            replication.lead()
        if replication.term is None:
            replication.term = (self._node.revision, time.time_ns())

    def follow_if(self, map: ClusterMap) -> None:
        """Afterwards: whoever does not lead by it follows, and those who waited are sent to whoever does."""
        replication, primary = self._replication, map.replicas.get(self._node.id)
        if replication is not None and primary is not None:
            member, link = map.members[primary], replication.link
            if link is None or (link.host, link.port) != (member.host, member.port):
                log.info("this node follows %s from epoch %d on", member.address, map.epoch)
                self._standing = None
                replication.follow(member.host, member.port)
        if self.is_yielding and not map.slots_of(self._node.id):
            self._open()

    async def watch(self) -> None:
        """A replica's watch over its primary's lease."""
        node = self._node
        while True:
            await asyncio.sleep(node.settings.node_timeout_s / 8)
            primary = node.map.replicas.get(node.id)
            if primary is None or self._replication is None:
                continue
            try:
                if await self.successor_of(primary) == node.id:
                    log.warning("the lease of primary %s has ended: taking its place", primary)
                    await node.promote(without_lease=primary)
            except VerbenaError as error:
                log.warning("the primary's lease could not be looked at: %s", error.what)

    async def successor_of(self, primary: str) -> str | None:
        """Who is to take its place, as far as that is known. A replica that is asked says how far it is, and
        acknowledges nothing to the primary any more: otherwise WAIT could count what nobody reckons with."""
        node, replication = self._node, self._replication
        said = await node.store.said()
        if node.map.replicas.get(node.id) != primary:
            return (
                None  # the map has changed meanwhile: a swap of ours, whose answer was lost, may have done it
            )
        if primary in said:
            if self._standing is not None:  # it is back
                self._standing = None
                member = node.map.members[primary]
                replication.follow(member.host, member.port)
            return None
        if self._standing is None or self._standing.primary != primary:
            place = replication.stand()
            self._standing = Standing(primary, place.term, place.replid, place.offset)
            log.warning("the lease of primary %s has ended: %s", primary, self._standing)
        word = self._standing.encode()
        if said.get(node.id) != word:
            await node.say(word)
        return successor(node.map, primary, await node.store.said())

    # A planned change: CLUSTER FAILOVER

    def give_way(self) -> dict[str, int]:
        """At the primary: nothing is written from now on, until the map has changed. How far its log has
        come, and which revision of the map the replica may change: taking it back changes that, too."""
        node = self._node
        if self.is_yielding:
            raise ValueError("this node gives way already")
        if any(node.id in (move.source, move.target) for move in node.map.moves.values()):
            raise ValueError("slots are on their way from this node, or to it")
        self.is_yielding = True
        node.gate.fence([slot for found in node.map.slots_of(node.id) for slot in found])
        node.server.engine.commit()
        self._patience = node.loop.call_later(_YIELD_S, lambda: node._spawn(self._take_back()))
        return {"position": self.position, "revision": node.revision}

    async def _take_back(self) -> None:
        """Nobody has taken the place, and after this nobody can without asking again."""
        node = self._node
        while self.is_yielding:
            try:
                await node.change(lambda map: map.confirm() if map.slots_of(node.id) else map)
                self._open()
            except VerbenaError as error:
                log.warning("what was given way to is not known: %s", error.what)
                await asyncio.sleep(_YIELD_S / 20)

    def _open(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self.is_yielding = False
        self._node.gate.open(range(16384))

    async def catch_up(self, position: int) -> None:
        """At the replica: until it has what the primary had."""
        ends = self._node.loop.time() + _YIELD_S / 2
        while self.position < position:
            if self._node.loop.time() > ends:
                detail = f"{position - self.position} bytes of the log are missing"
                raise setup_error("not_ready", operation="fail over", detail=detail)
            await asyncio.sleep(0.002)
