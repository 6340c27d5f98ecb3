"""The migration of slots from a source to a target, as states without I/O; time is passed in.

    Prepared → BaseCopy → CatchUp → CutOver → Deciding → Moved → Done
        └──────────┴─────────┴─────────┴──────────┴→ RolledBack

Each state is a class of its own, with methods only for the steps that may follow: a step that is not allowed
does not type-check. The source owns the slots up to `Deciding`, when it requests a change of the cluster map;
once the map has changed, the move can only be completed."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from verbena.errors import setup_error
from verbena.shards.positions import SourcePosition
from verbena.shards.slots import SlotRange


class Phase(enum.IntEnum):
    PREPARED = 1
    BASE_COPY = 2
    CATCH_UP = 3
    CUT_OVER = 4
    DECIDING = 5
    MOVED = 6
    DONE = 7
    ROLLED_BACK = 8


@dataclass(frozen=True)
class Limits:
    """`ready_within`: how many records the target may be behind when writes stop. `pause_budget_s`: how long
    writes may be stopped. `attempts`: the number of attempts in all."""

    ready_within: int = 1000
    pause_budget_s: float = 0.1
    attempts: int = 5


@dataclass(frozen=True)
class Facts:
    """What identifies a move and its attempt. Attempts count from 1; the target accepts only a newer one."""

    migration: str
    slots: SlotRange
    source: str
    target: str
    attempt: int = 1


@dataclass(frozen=True)
class RolledBack:
    """The source owns the slots, as before; the target discards what it received."""

    phase: ClassVar[Phase] = Phase.ROLLED_BACK
    facts: Facts
    why: str
    pause_s: float = 0.0


@dataclass(frozen=True)
class Done:
    """The target owns the slots, and the source has removed its copy."""

    phase: ClassVar[Phase] = Phase.DONE
    facts: Facts
    epoch: int
    pause_s: float


@dataclass(frozen=True)
class Moved:
    """The map has given the slots to the target; the source still has its copy."""

    phase: ClassVar[Phase] = Phase.MOVED
    facts: Facts
    epoch: int
    pause_s: float = 0.0

    def cleaned(self) -> Done:
        """The source has removed its copy."""
        return Done(self.facts, self.epoch, self.pause_s)


@dataclass(frozen=True)
class Deciding:
    """Both hold the same keys, writes are stopped, and the change of the map was requested: the map
    decides."""

    phase: ClassVar[Phase] = Phase.DECIDING
    facts: Facts
    digest: str
    fenced_at: float

    def decided(self, *, moved: bool, epoch: int, now: float) -> Moved | RolledBack:
        """The map has answered."""
        pause_s = now - self.fenced_at
        if moved:
            return Moved(self.facts, epoch, pause_s)
        return RolledBack(self.facts, "another change of the cluster map came first", pause_s)

    def not_asked(self, why: str, now: float) -> RolledBack:
        """The request was certainly not sent: there was no time left for it."""
        return RolledBack(self.facts, why, now - self.fenced_at)


@dataclass(frozen=True)
class CutOver:
    """Writes to the slots wait, until `deadline`."""

    phase: ClassVar[Phase] = Phase.CUT_OVER
    facts: Facts
    fenced_at: float
    deadline: float
    drain_to: SourcePosition

    def compared(
        self, *, applied: SourcePosition, source: str, target: str, now: float
    ) -> Deciding | RolledBack:
        """The target has applied the rest of the log, and both have computed their digests."""
        if applied < self.drain_to:
            missing = self.drain_to - applied
            return self.roll_back(f"{missing} records are missing at the target", now)
        if source != target:
            return self.roll_back(f"digests differ: {source} at the source, {target} at the target", now)
        if now > self.deadline:
            spent, allowed = now - self.fenced_at, self.deadline - self.fenced_at
            return self.roll_back(
                f"writes paused for {spent * 1e3:.1f} ms, the limit is {allowed * 1e3:.1f} ms", now
            )
        return Deciding(self.facts, source, self.fenced_at)

    def roll_back(self, why: str, now: float) -> RolledBack:
        return RolledBack(self.facts, why, now - self.fenced_at)


@dataclass(frozen=True)
class CatchUp:
    """The target applies the log from the position where the base copy began."""

    phase: ClassVar[Phase] = Phase.CATCH_UP
    facts: Facts
    applied: SourcePosition
    head: SourcePosition

    @property
    def behind(self) -> int:
        return max(0, self.head - self.applied)

    def progressed(self, applied: SourcePosition, head: SourcePosition) -> CatchUp:
        """The target has acknowledged records; positions never decrease."""
        return replace(self, applied=max(applied, self.applied), head=max(head, self.head))

    def is_ready(self, limits: Limits) -> bool:
        return self.behind <= limits.ready_within

    def fence(self, limits: Limits, now: float) -> CutOver:
        """Stops writes. StateError: the target is too far behind."""
        if not self.is_ready(limits):
            detail = f"the target is {self.behind} records behind, the limit is {limits.ready_within}"
            raise setup_error("not_ready", operation="cut over", detail=detail)
        return CutOver(self.facts, now, now + limits.pause_budget_s, self.head)

    def roll_back(self, why: str) -> RolledBack:
        return RolledBack(self.facts, why)


@dataclass(frozen=True)
class BaseCopy:
    """Segments are sent; the target has acknowledged `acknowledged` bytes. `began`: where catch-up starts."""

    phase: ClassVar[Phase] = Phase.BASE_COPY
    facts: Facts
    began: SourcePosition
    acknowledged: int = 0
    segments: int = 0

    def acknowledge(self, nbytes: int) -> BaseCopy:
        if nbytes < 0:
            raise ValueError("acknowledged bytes cannot decrease")
        return replace(self, acknowledged=self.acknowledged + nbytes, segments=self.segments + 1)

    def copied(self, head: SourcePosition) -> CatchUp:
        """The target has acknowledged the whole copy."""
        return CatchUp(self.facts, self.began, max(head, self.began))

    def roll_back(self, why: str) -> RolledBack:
        return RolledBack(self.facts, why)


@dataclass(frozen=True)
class Prepared:
    """The map has the move; nothing has been sent."""

    phase: ClassVar[Phase] = Phase.PREPARED
    facts: Facts

    def begin(self, began: SourcePosition) -> BaseCopy:
        return BaseCopy(self.facts, began)

    def after(self, attempt: int) -> Prepared:
        """The target has seen `attempt`, which a lost checkpoint hid: continues with the next number.
        ValueError: it is older than this one."""
        if attempt < self.facts.attempt:
            raise ValueError(f"attempt {attempt} comes before {self.facts.attempt}")
        return Prepared(replace(self.facts, attempt=attempt + 1))

    def again(self, limits: Limits) -> Prepared | RolledBack:
        """After a failure: the next attempt, or the end if there were too many."""
        if self.facts.attempt >= limits.attempts:
            return RolledBack(self.facts, f"{self.facts.attempt} attempts have failed")
        return Prepared(replace(self.facts, attempt=self.facts.attempt + 1))

    def roll_back(self, why: str) -> RolledBack:
        return RolledBack(self.facts, why)


State = Prepared | BaseCopy | CatchUp | CutOver | Deciding | Moved | Done | RolledBack
_STATES: dict[Phase, Any] = {
    state.phase: state for state in (Prepared, BaseCopy, CatchUp, CutOver, Deciding, Moved, Done, RolledBack)
}


def is_over(state: State) -> bool:
    return isinstance(state, Done | RolledBack)


def to_payload(state: State) -> dict[str, Any]:
    """The fields of a checkpoint: all that is needed to continue the move or to undo it."""
    return {**asdict(state), "facts": {**asdict(state.facts), "slots": str(state.facts.slots)}}


def from_payload(phase: Phase, payload: dict[str, Any]) -> State:
    """The reverse of to_payload(). KeyError, TypeError or ValueError: it is not such a state."""
    state_type = _STATES[phase]
    wanted, found = {field.name for field in fields(state_type)}, set(payload)
    if found != wanted:
        of = [
            other.name for other, type in _STATES.items() if {field.name for field in fields(type)} == found
        ]
        holds = f"what {' or '.join(of)} has" if of else f"{', '.join(sorted(found)) or 'nothing'}"
        raise ValueError(
            f"its phase is {phase.name}, which takes {', '.join(sorted(wanted))}, "
            f"and holds {holds}: it is of another version"
        )
    facts = Facts(**{**payload["facts"], "slots": SlotRange.parse(payload["facts"]["slots"])})
    values = {
        name: SourcePosition(value["lsn"]) if isinstance(value, dict) else value
        for name, value in payload.items()
        if name != "facts"
    }
    state: State = state_type(facts, **values)
    return state


def recover(state: State, *, owns: bool, known: bool, limits: Limits) -> State:
    """The state in which a restarted source continues from its last checkpoint. `owns`: the map assigns the
    slots to it; `known`: the map still has the move. The map decides, whatever the checkpoint holds: if the
    source does not own the slots the move is completed, else it starts again or ends."""
    if is_over(state):
        return state
    if not owns:
        pause_s = state.pause_s if isinstance(state, Moved) else 0.0
        return Moved(state.facts, 0, pause_s)
    if not known:
        return RolledBack(state.facts, "the move was aborted")
    return Prepared(state.facts).again(limits)
