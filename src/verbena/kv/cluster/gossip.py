"""Gossip: a few times within `node_timeout` each node tells every other how it is, and hears the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verbena.errors import VerbenaError
from verbena.shards.cluster_map import Member
from verbena.shards.envelope import Envelope, Flag, Kind
from verbena.shards.liveness import Detector, Health

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode


class Gossip:
    """`fast`: by the best wire there is, else by the fallback's."""

    def __init__(self, node: ClusterNode, *, timeout_s: float, fast: bool) -> None:
        self._node = node
        self._fast = fast
        self._period_s = max(0.02, timeout_s / 6)
        self._heartbeat = 0
        self._epochs: dict[str, int] = {}  # boot epochs of members
        # Who has not answered yet, and since when: by the clock on the wall.
        self._asked: dict[str, float] = {}
        self.detector = Detector(node.id, timeout_s=timeout_s, now=time.monotonic())
        self.messages = {"sent": 0, "received": 0}

    async def run(self) -> None:
        node = self._node
        while True:
            self._heartbeat += 1
            for member in [member for id, member in node.map.members.items() if id != node.id]:
                node._spawn(self._tell(member))
            await asyncio.sleep(self._period_s)

    async def _tell(self, member: Member) -> None:
        node = self._node
        message = node.peers.envelope(Kind.GOSSIP, member, self._news())
        self._asked.setdefault(member.id, time.time())
        with contextlib.suppress(VerbenaError, asyncio.TimeoutError):
            answered = await asyncio.wait_for(
                node.peers.ask(member, message, fast=self._fast), self._period_s * 3
            )
            self.messages["sent"] += 1
            self.hear(answered)

    def answer(self, message: Envelope) -> bytes:
        """News for news."""
        self.hear(message)
        reply = self._node.peers.envelope(Kind.GOSSIP, self._node.me, self._news())
        return bytes(replace(reply, target=message.source, sequence=message.sequence, flags=Flag.ANSWER))

    def _news(self) -> bytes:
        node = self._node
        news = {
            "heartbeat": self._heartbeat,
            "revision": node.revision,
            "load": self._load,
            "position": node.roles.position,
            "suspects": sorted(self.detector.suspects(time.monotonic())),
        }
        return json.dumps(news).encode()

    @property
    def _load(self) -> int:
        """Commands a second."""
        return int(self._node.server.figures.ops.per_second)

    def hear(self, message: Envelope) -> None:
        node, member, now = self._node, message.source.hex(), time.monotonic()
        if self._epochs.get(member) != message.boot_epoch:
            self._epochs[member] = message.boot_epoch
            self.detector.restarted(member, now)
        if message.flags & Flag.ANSWER:
            self._asked.pop(member, None)
        try:
            news = json.loads(message.payload)
            self.detector.hear(
                member,
                int(news["heartbeat"]),
                now,
                load=int(news["load"]),
                suspects=map(str, news["suspects"]),
            )
            node.roles.positions[member] = int(news["position"])
            newer = int(news["revision"]) > node.revision
        except (ValueError, KeyError, TypeError):
            return
        if newer:
            node._spawn(node.refresh())

    # What is known

    def health(self, id: str) -> Health:
        if id == self._node.id:
            return Health.ALIVE
        return self.detector.health(id, time.monotonic(), self._voters)

    def failure_reports(self, id: str) -> int:
        return len(self.detector.reports(id, time.monotonic(), self._voters))

    def times_of(self, id: str) -> tuple[int, int]:
        """Unix times in ms as CLUSTER NODES has them: of the question that waits for an answer, and of the
        last word. 0: there is none."""
        silent_s = self.detector.silent_s(id, time.monotonic())
        heard = 0 if silent_s is None else int((time.time() - silent_s) * 1000)
        return int(self._asked.get(id, 0) * 1000), heard

    def views(self) -> list[dict[str, Any]]:
        """Every member as this node sees it. `silent_s` is None if nothing was heard of it yet."""
        return [self._view(id) for id in self._node.map.members]

    def _view(self, id: str) -> dict[str, Any]:
        here = id == self._node.id
        silent_s = 0.0 if here else self.detector.silent_s(id, time.monotonic())
        return {
            "id": id,
            "health": self.health(id).value,
            "load": self._load if here else self.detector.load_of(id),
            "silent_s": None if silent_s is None else round(silent_s, 3),
            "wire": "" if here else self._node.peers.wire_to(id, fast=self._fast),
        }

    @property
    def _voters(self) -> list[str]:
        map = self._node.map
        return [member for member in map.members if member not in map.replicas]
