"""Failure detection from gossip, without I/O; time is passed in. It never decides about ownership."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Health(enum.Enum):
    ALIVE = "alive"
    SUSPECTED = "pfail"  # no message for longer than the timeout
    FAILED = "fail"  # more than half of the voters suspect it


@dataclass(frozen=True)
class LastMessage:
    """The newest message of a member: its heartbeat counter, its load, and the members that it suspects."""

    heartbeat: int
    at: float
    load: int = 0
    suspects: frozenset[str] = frozenset()


class Detector:
    """The detector of member `self_id`. A member is suspected when its heartbeat has not grown for
    `timeout_s`; it has failed when more than half of the voters suspect it. It is alive again with its next
    heartbeat."""

    def __init__(self, self_id: str, *, timeout_s: float, now: float) -> None:
        self.self_id = self_id
        self.timeout_s = timeout_s
        self._last: dict[str, LastMessage] = {}
        self._began = now

    def members(self, ids: Iterable[str], now: float) -> None:
        """Sets the members to watch; the timeout of a new one starts now."""
        wanted = set(ids) - {self.self_id}
        self._last = {id: self._last.get(id, LastMessage(-1, now)) for id in wanted}

    def receive(
        self, id: str, heartbeat: int, now: float, *, load: int = 0, suspects: Iterable[str] = ()
    ) -> bool:
        """Records a message of a member. False: it is not newer than the last one."""
        known = self._last.get(id)
        if known is None or heartbeat <= known.heartbeat:
            return False
        self._last[id] = LastMessage(heartbeat, now, load, frozenset(suspects))
        return True

    def restarted(self, id: str, now: float) -> None:
        """Its heartbeat counter starts from the beginning."""
        if id in self._last:
            self._last[id] = LastMessage(-1, now)

    def suspects(self, now: float) -> frozenset[str]:
        return frozenset(id for id, last in self._last.items() if now - last.at > self.timeout_s)

    def health(self, id: str, now: float, voters: Iterable[str]) -> Health:
        """`voters`: the members whose suspicions count, usually the primaries."""
        if id not in self.suspects(now):
            return Health.ALIVE
        electorate = set(voters)
        votes = ({self.self_id} & electorate) | self.reports(id, now, electorate)
        return Health.FAILED if 2 * len(votes) > len(electorate) else Health.SUSPECTED

    def reports(self, id: str, now: float, voters: Iterable[str]) -> set[str]:
        """The other voters that suspect it, without those that are suspected themselves."""
        others = set(voters) - {self.self_id, id} - self.suspects(now)
        return {voter for voter in others if voter in self._last and id in self._last[voter].suspects}

    def silent_s(self, id: str, now: float) -> float | None:
        """Seconds since its last message; None: there was none yet."""
        last = self._last.get(id)
        return now - last.at if last is not None and last.heartbeat >= 0 else None

    def load_of(self, id: str) -> int:
        return self._last[id].load if id in self._last else 0
