"""Gossip: several times within `node_timeout` each node sends its state to every other, and receives
theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from verbena.errors import VerbenaError
from verbena.kv.cluster.current_map import CurrentMap
from verbena.kv.cluster.member_sessions import MemberSessions
from verbena.shards.cluster_map import Member
from verbena.shards.envelope import Envelope, Flag, Kind
from verbena.shards.liveness import Detector, Health


class Gossip:
    """`fast`: over the best wire, else over the fallback's. `load` and `position` are this node's commands
    per second and log offset; `spawn` starts a task that ends with the node."""

    def __init__(
        self,
        member: str,
        *,
        map: CurrentMap,
        sessions: MemberSessions,
        load: Callable[[], int],
        position: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, Any]], Any],
        timeout_s: float,
        fast: bool,
    ) -> None:
        self.detector = Detector(member, timeout_s=timeout_s, now=time.monotonic())
        self.messages = {"sent": 0, "received": 0}
        self.positions: dict[str, int] = {}  # the log offsets of other members, for CLUSTER SHARDS
        self._member = member
        self._map = map
        self._sessions = sessions
        self._load = load
        self._position = position
        self._spawn = spawn
        self._fast = fast
        self._period_s = max(0.02, timeout_s / 6)
        self._heartbeat = 0
        self._boot_epochs: dict[str, int] = {}
        self._unanswered: dict[str, float] = {}  # Unix time of the first message without an answer

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._heartbeat += 1
            for id, member in self._map.map.members.items():
                if id != self._member:
                    self._spawn(self._exchange(member))
            await asyncio.sleep(self._period_s)

    async def _exchange(self, member: Member) -> None:
        message = self._sessions.envelope(Kind.GOSSIP, member, self._state())
        self._unanswered.setdefault(member.id, time.time())
        with contextlib.suppress(VerbenaError, asyncio.TimeoutError):
            answered = await asyncio.wait_for(
                self._sessions.request(member, message, fast=self._fast), self._period_s * 3
            )
            self.messages["sent"] += 1
            self._receive(answered)

    def answer(self, message: Envelope) -> bytes:
        """Records a member's state; the answer is this node's."""
        self._receive(message)
        me = self._map.map.members[self._member]
        reply = self._sessions.envelope(Kind.GOSSIP, me, self._state())
        return bytes(replace(reply, target=message.source, sequence=message.sequence, flags=Flag.ANSWER))

    def _state(self) -> bytes:
        state = {
            "heartbeat": self._heartbeat,
            "revision": self._map.revision,
            "load": self._load(),
            "position": self._position(),
            "suspects": sorted(self.detector.suspects(time.monotonic())),
        }
        return json.dumps(state).encode()

    def _receive(self, message: Envelope) -> None:
        member, now = message.source.hex(), time.monotonic()
        if self._boot_epochs.get(member) != message.boot_epoch:
            self._boot_epochs[member] = message.boot_epoch
            self.detector.restarted(member, now)
        if message.flags & Flag.ANSWER:
            self._unanswered.pop(member, None)
        try:
            state = json.loads(message.payload)
            self.detector.receive(
                member,
                int(state["heartbeat"]),
                now,
                load=int(state["load"]),
                suspects=map(str, state["suspects"]),
            )
            self.positions[member] = int(state["position"])
            newer = int(state["revision"]) > self._map.revision
        except (ValueError, KeyError, TypeError):
            return
        if newer:
            self._spawn(self._map.refresh())

    # Reports

    def health(self, id: str) -> Health:
        if id == self._member:
            return Health.ALIVE
        return self.detector.health(id, time.monotonic(), self._voters)

    def failure_reports(self, id: str) -> int:
        return len(self.detector.reports(id, time.monotonic(), self._voters))

    def times_of(self, id: str) -> tuple[int, int]:
        """Returns Unix times in ms as in CLUSTER NODES: of the first message that waits for an answer, and of
        the last message received. 0: there is none."""
        silent_s = self.detector.silent_s(id, time.monotonic())
        received = 0 if silent_s is None else int((time.time() - silent_s) * 1000)
        return int(self._unanswered.get(id, 0) * 1000), received

    def views(self) -> list[dict[str, Any]]:
        """Returns the state of every member, as this node sees it. `silent_s` None: nothing was received
        yet."""
        return [self._view(id) for id in self._map.map.members]

    def _view(self, id: str) -> dict[str, Any]:
        here = id == self._member
        silent_s = 0.0 if here else self.detector.silent_s(id, time.monotonic())
        return {
            "id": id,
            "health": self.health(id).value,
            "load": self._load() if here else self.detector.load_of(id),
            "silent_s": None if silent_s is None else round(silent_s, 3),
            "wire": "" if here else self._sessions.wire_to(id, fast=self._fast),
        }

    @property
    def _voters(self) -> list[str]:
        map = self._map.map
        return [member for member in map.members if member not in map.replicas]
