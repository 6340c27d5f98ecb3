"""Primaries and replicas of a cluster: a node follows the primary that the map names. A replica replaces a
primary whose lease has ended if it is the most advanced one, or on CLUSTER FAILOVER."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster.current_map import CurrentMap
from verbena.kv.cluster.member_sessions import MemberSessions
from verbena.kv.cluster.slot_guard import SlotGuard
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.election import Standing, successor
from verbena.shards.envelope import Kind
from verbena.shards.slots import SLOTS
from verbena.shards.stores import conflict

if TYPE_CHECKING:
    from verbena.kv.replication.replication import Replication

log = logging.getLogger("verbena.kv.cluster")
_YIELD_S = 5.0


class ReplicaPromotion:
    """`replication` returns the server's Replication; None if replication is off. `announce` publishes a text
    together with this node's lease."""

    def __init__(
        self,
        member: str,
        *,
        map: CurrentMap,
        engine: _native.kv.Engine,
        guard: SlotGuard,
        sessions: MemberSessions,
        replication: Callable[[], Replication | None],
        announce: Callable[[str], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self.is_yielding = False  # this primary does not write: a replica is about to replace it
        self._member = member
        self._map = map
        self._engine = engine
        self._guard = guard
        self._sessions = sessions
        self._replication = replication
        self._announce = announce
        self._spawn = spawn
        self._standing: Standing | None = None  # set while the primary's lease has ended and none is followed
        self._yield_timer: asyncio.TimerHandle | None = None

    @property
    def position(self) -> int:
        """The offset that this node's log has reached; on a replica, the offset in its primary's log."""
        replication = self._replication()
        if replication is None:
            return 0
        return int(replication.link.offset if replication.link is not None else replication.written_offset)

    def lead_if_primary(self, map: ClusterMap) -> None:
        """If the new map makes this node a primary, stops following. Call it before the map takes effect for
        clients."""
        replication = self._replication()
        if replication is None or self._member in map.replicas:
            return
        if replication.link is not None:
            log.info("this node leads from epoch %d on", map.epoch)
            self._standing = replication.term = None
            replication.lead()
        if replication.term is None:
            replication.term = (self._map.revision, time.time_ns())

    def follow_if_replica(self, map: ClusterMap) -> None:
        """If the new map makes this node a replica, follows its primary. Call it after the map has taken
        effect for clients."""
        replication, primary = self._replication(), map.replicas.get(self._member)
        if replication is not None and primary is not None:
            member, link = map.members[primary], replication.link
            if link is None or (link.host, link.port, link.sessions) != _address(member):
                log.info("this node follows %s from epoch %d on", member.address, map.epoch)
                self._standing = None
                replication.follow(member.host, member.port, sessions=member.sessions)
        if self.is_yielding and not map.slots_of(self._member):
            self._end_yield()

    # The primary's lease has ended

    async def watch(self, period_s: float) -> None:
        """Watches the lease of this replica's primary. Runs until cancelled."""
        while True:
            await asyncio.sleep(period_s)
            primary = self._map.map.replicas.get(self._member)
            if primary is None or self._replication() is None:
                continue
            try:
                if await self.successor_of(primary) == self._member:
                    log.warning("the lease of primary %s has ended: this node replaces it", primary)
                    await self._map.promote(self._member, without_lease=primary)
            except VerbenaError as error:
                log.warning("the primary's lease could not be read: %s", error.what)

    async def successor_of(self, primary: str) -> str | None:
        """Returns the replica that is to replace a primary without a lease; None: not known yet, or none is
        needed. From the first call on, this replica acknowledges nothing to that primary: otherwise WAIT
        could count writes that the announced offset does not include."""
        replication = self._replication()
        announced = await self._map.store.announcements()
        if replication is None or self._map.map.replicas.get(self._member) != primary:
            return None  # the map has changed, perhaps by a request of this node whose answer was lost
        if primary in announced:
            if self._standing is not None:  # the primary is back
                self._standing = None
                member = self._map.map.members[primary]
                replication.follow(member.host, member.port, sessions=member.sessions)
            return None
        if self._standing is None or self._standing.primary != primary:
            position = replication.stop_following()
            self._standing = Standing(primary, position.term, position.replid, position.offset)
            log.warning("the lease of primary %s has ended: %s", primary, self._standing)
        text = self._standing.encode()
        if announced.get(self._member) != text:
            await self._announce(text)
        return successor(self._map.map, primary, await self._map.store.announcements())

    async def take_over(self, *, force: bool) -> None:
        """Replaces a primary whose lease has ended. `force`: even if another replica is more advanced, or
        this replica's copy is incomplete. Raises BusyError if the primary holds its lease, or this replica is
        not the successor."""
        primary = self._map.map.replicas[self._member]
        chosen = await self.successor_of(primary)
        if not force and chosen not in (None, self._member):
            raise conflict(f"replica {chosen} is more advanced: use that one, or TAKEOVER")
        if not force and chosen is None and primary not in await self._map.store.announcements():
            raise conflict(
                "a replica has not announced its position yet, or none is complete: wait, or TAKEOVER"
            )
        await self._map.promote(self._member, without_lease=primary)

    # A planned change: CLUSTER FAILOVER

    async def run_planned(self) -> None:
        """Runs on the replica: requests that the primary stop writing, receives the rest of its log and
        replaces it. Raises ValueError if this node is not a replica."""
        primary = self._map.map.replicas.get(self._member)
        if primary is None:
            raise ValueError("You should send CLUSTER FAILOVER to a replica")
        member = self._map.map.members[primary]
        message = self._sessions.envelope(Kind.YIELD, member)
        answer = json.loads((await self._sessions.request(member, message, timeout_s=5)).payload)
        await self._catch_up(int(answer["position"]))
        await self._map.promote(self._member, revision=int(answer["revision"]))

    def begin_yield(self) -> dict[str, int]:
        """Runs on the primary: stops writing until the map has changed or the time-out has passed. Returns
        the position of its log, and the revision of the map that the replica must replace; the time-out
        changes that revision too, so that a late replica fails. Raises ValueError if this node cannot yield
        now."""
        if self.is_yielding:
            raise ValueError("this node is yielding already")
        map = self._map.map
        if any(self._member in (move.source, move.target) for move in map.moves.values()):
            raise ValueError("slots are on their way from this node, or to it")
        self.is_yielding = True
        self._guard.fence([slot for found in map.slots_of(self._member) for slot in found])
        self._engine.commit()
        self._yield_timer = asyncio.get_running_loop().call_later(
            _YIELD_S, lambda: self._spawn(self._cancel_yield())
        )
        return {"position": self.position, "revision": self._map.revision}

    async def _cancel_yield(self) -> None:
        """After the time-out: changes the map, so that the replica's request fails, and serves again."""
        while self.is_yielding:
            try:
                await self._map.change(lambda map: map.confirm() if map.slots_of(self._member) else map)
                self._end_yield()
            except VerbenaError as error:
                log.warning("the planned failover could not be cancelled yet: %s", error.what)
                await asyncio.sleep(_YIELD_S / 20)

    def _end_yield(self) -> None:
        if self._yield_timer is not None:
            self._yield_timer.cancel()
            self._yield_timer = None
        self.is_yielding = False
        self._guard.open(range(SLOTS))

    async def _catch_up(self, position: int) -> None:
        """Runs on the replica: waits until its log has reached `position`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _YIELD_S / 2
        while self.position < position:
            if loop.time() > ends:
                detail = f"{position - self.position} bytes of the log are missing"
                raise setup_error("not_ready", operation="fail over", detail=detail)
            await asyncio.sleep(0.002)


def _address(member: Member) -> tuple[str, int, str]:
    return member.host, member.port, member.sessions
