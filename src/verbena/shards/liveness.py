"""Who is alive, as gossip tells: a pure detector, time passed in. It never decides who owns what."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Health(enum.Enum):
    ALIVE = "alive"
    SUSPECTED = "pfail"  # silent for longer than the time allowed
    FAILED = "fail"  # most members that hear each other say so


@dataclass(frozen=True)
class Heard:
    """The newest word of a member, directly or by others: its own counter, its load, and what it suspects."""

    heartbeat: int
    at: float
    load: int = 0
    suspects: frozenset[str] = frozenset()


class Detector:
    """`self_id` hears of others. A member is suspected when its heartbeat has not grown for `timeout_s`; it
    has failed when more than half of the voters suspect it. It is alive again with its next heartbeat."""

    def __init__(self, self_id: str, *, timeout_s: float, now: float) -> None:
        self.self_id = self_id
        self.timeout_s = timeout_s
        self._heard: dict[str, Heard] = {}
        self._began = now

    def members(self, ids: Iterable[str], now: float) -> None:
        """Who is to be watched; a new one has the whole time to speak up."""
        wanted = set(ids) - {self.self_id}
        self._heard = {id: self._heard.get(id, Heard(-1, now)) for id in wanted}

    def receive(
        self, id: str, heartbeat: int, now: float, *, load: int = 0, suspects: Iterable[str] = ()
    ) -> bool:
        """A word of a member's, first- or second-hand. False: it is no newer than what is known."""
        known = self._heard.get(id)
        if known is None or heartbeat <= known.heartbeat:
            return False
        self._heard[id] = Heard(heartbeat, now, load, frozenset(suspects))
        return True

    def restarted(self, id: str, now: float) -> None:
        """Its counter begins anew."""
        if id in self._heard:
            self._heard[id] = Heard(-1, now)

    def suspects(self, now: float) -> frozenset[str]:
        return frozenset(id for id, heard in self._heard.items() if now - heard.at > self.timeout_s)

    def health(self, id: str, now: float, voters: Iterable[str]) -> Health:
        """`voters`: whose word counts, usually the primaries."""
        if id not in self.suspects(now):
            return Health.ALIVE
        electorate = set(voters)
        votes = ({self.self_id} & electorate) | self.reports(id, now, electorate)
        return Health.FAILED if 2 * len(votes) > len(electorate) else Health.SUSPECTED

    def reports(self, id: str, now: float, voters: Iterable[str]) -> set[str]:
        """Which other voters suspect it, of those who are not suspected themselves."""
        asked = set(voters) - {self.self_id, id} - self.suspects(now)
        return {voter for voter in asked if voter in self._heard and id in self._heard[voter].suspects}

    def silent_s(self, id: str, now: float) -> float | None:
        """Since its last word; None: there was none yet."""
        heard = self._heard.get(id)
        return now - heard.at if heard is not None and heard.heartbeat >= 0 else None

    def load_of(self, id: str) -> int:
        return self._heard[id].load if id in self._heard else 0
