"""The states of a migration: transitions, readiness of the target, and recovery after a crash."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from verbena.errors import ProtocolError, StateError
from verbena.kv.migration import checkpoint
from verbena.kv.migration.checkpoint import Checkpoints
from verbena.shards.migration import (
    BaseCopy,
    CatchUp,
    CutOver,
    Deciding,
    Done,
    Facts,
    Limits,
    Moved,
    Phase,
    Prepared,
    RolledBack,
    State,
    from_payload,
    is_over,
    recover,
)
from verbena.shards.positions import SourcePosition
from verbena.shards.slots import SlotRange

FACTS = Facts("ab" * 16, SlotRange(5, 9), "1" * 40, "2" * 40)
LIMITS = Limits(ready_within=10, pause_budget_s=0.02, attempts=3)
EVERY: list[State] = [
    Prepared(FACTS),
    BaseCopy(FACTS, SourcePosition(7), 4096, 2),
    CatchUp(FACTS, SourcePosition(7), SourcePosition(9)),
    CutOver(FACTS, 1.5, 1.52, SourcePosition(9)),
    Deciding(FACTS, "00ff", 1.5),
    Moved(FACTS, 12, 0.001),
    Done(FACTS, 12, 0.001),
    RolledBack(FACTS, "why", 0.0),
]


def test_a_move_passes_all_phases() -> None:
    copying = Prepared(FACTS).begin(SourcePosition(100)).acknowledge(10).acknowledge(20)
    assert (copying.acknowledged, copying.segments) == (30, 2)
    following = copying.copied(SourcePosition(150))
    assert following.behind == 50
    following = following.progressed(SourcePosition(145), SourcePosition(155))
    fenced = following.fence(LIMITS, now=1.0)
    deciding = fenced.compared(applied=SourcePosition(155), source="d", target="d", now=1.01)
    assert isinstance(deciding, Deciding)
    moved = deciding.decided(moved=True, epoch=5, now=1.015)
    assert isinstance(moved, Moved)
    done = moved.cleaned()
    assert (done.epoch, round(done.pause_s, 6)) == (5, 0.015)


def test_a_target_a_million_records_behind_is_not_ready() -> None:
    following = CatchUp(FACTS, SourcePosition(0), SourcePosition(1_000_000))
    assert not following.is_ready(Limits())
    with pytest.raises(StateError, match="1000000 records behind"):
        following.fence(Limits(), now=0.0)


@pytest.mark.parametrize(
    ("applied", "digest", "now", "why"),
    [
        (8, "d", 1.0, "1 records are missing"),
        (9, "e", 1.0, "digests differ"),
        (9, "d", 1.03, "30.0 ms, the limit is 20.0"),
    ],
)
def test_the_cut_over_is_rolled_back(applied: int, digest: str, now: float, why: str) -> None:
    """A target that lacks records, has other content, or takes too long does not get the slots."""
    fenced = CutOver(FACTS, 1.0, 1.02, SourcePosition(9))
    end = fenced.compared(applied=SourcePosition(applied), source="d", target=digest, now=now)
    assert isinstance(end, RolledBack)
    assert why in end.why


def test_each_state_has_only_its_own_steps() -> None:
    """Each state has methods only for the states that may follow it."""
    steps = {
        type(state).__name__: {name for name in dir(state) if not name.startswith("_")}
        - {"facts", "phase", *state.__dataclass_fields__}
        for state in EVERY
    }
    assert steps == {
        "Prepared": {"begin", "after", "again", "roll_back"},
        "BaseCopy": {"acknowledge", "copied", "roll_back"},
        "CatchUp": {"progressed", "behind", "is_ready", "fence", "roll_back"},
        "CutOver": {"compared", "roll_back"},
        "Deciding": {"decided", "not_asked"},
        "Moved": {"cleaned"},
        "Done": set(),
        "RolledBack": set(),
    }


@pytest.mark.parametrize("state", EVERY, ids=lambda state: state.phase.name)
def test_a_checkpoint_restores_the_state(state: State, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "some" / "folder")
    kept.write(state)
    assert kept.read_all() == [state]
    kept.remove(FACTS.migration)
    assert kept.read_all() == []
    assert checkpoint.decode(checkpoint.encode(state)) == state


def test_a_crash_while_writing_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.write(EVERY[0])
    (tmp_path / f"{FACTS.migration}.new").write_bytes(checkpoint.encode(EVERY[1])[:30])
    assert kept.read_all() == [EVERY[0]]


@given(st.integers(0, len(checkpoint.encode(EVERY[3])) * 8 - 1))
def test_a_damaged_checkpoint_is_rejected(bit: int) -> None:
    data = bytearray(checkpoint.encode(EVERY[3]))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError):
        checkpoint.decode(bytes(data))


@pytest.mark.parametrize(
    "data", [b"", b"VSCP", checkpoint.encode(EVERY[0]) + b"x", checkpoint.encode(EVERY[0])[:-1]]
)
def test_a_checkpoint_has_exactly_its_length(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        checkpoint.decode(data)
    (tmp_path / f"{FACTS.migration}.checkpoint").write_bytes(data)
    with pytest.raises(ProtocolError, match=FACTS.migration):
        Checkpoints(tmp_path).read_all()


def test_a_checkpoint_of_another_migration_is_rejected() -> None:
    from verbena import _native

    data = bytearray(checkpoint.encode(EVERY[0]))
    data[8:24] = bytes(16)
    data[-4:] = struct.pack("<I", _native.crc32c(bytes(data[:-4])))
    with pytest.raises(ProtocolError, match="belong together"):
        checkpoint.decode(bytes(data))


def test_a_checkpoint_of_another_phase_has_cause_and_remedy() -> None:
    """The error for a whole file also contains its path (see above)."""
    from verbena import _native

    data = bytearray(checkpoint.encode(EVERY[1]))
    for phase, said in ((Phase.DECIDING, "what BASE_COPY has"), (99, "99 is not a valid Phase")):
        data[6:8] = struct.pack("<H", phase)
        data[-4:] = struct.pack("<I", _native.crc32c(bytes(data[:-4])))
        with pytest.raises(ProtocolError, match=said) as raised:
            checkpoint.decode(bytes(data))
        assert "remedy: delete the file" in str(raised.value)
    with pytest.raises(
        ValueError, match="phase is MOVED, which takes epoch, facts, pause_s, and holds facts, speed"
    ):
        from_payload(Phase.MOVED, {"facts": {}, "speed": 3})


@pytest.mark.parametrize("state", EVERY[:6], ids=lambda state: state.phase.name)
def test_the_map_decides_how_a_restarted_source_continues(state: State) -> None:
    """If it still owns the slots the move starts again or ends; otherwise the move is completed."""
    again = recover(state, owns=True, known=True, limits=LIMITS)
    assert isinstance(again, Prepared)
    assert again.facts.attempt == 2
    assert isinstance(recover(state, owns=True, known=False, limits=LIMITS), RolledBack)
    assert isinstance(recover(state, owns=False, known=False, limits=LIMITS), Moved)
    assert isinstance(recover(state, owns=False, known=True, limits=LIMITS), Moved)


def test_attempts_are_bounded() -> None:
    state: State = Prepared(FACTS)
    for attempt in (2, 3):
        state = recover(state, owns=True, known=True, limits=LIMITS)
        assert state.facts.attempt == attempt
    assert isinstance(recover(state, owns=True, known=True, limits=LIMITS), RolledBack)


def test_attempt_numbers_never_decrease() -> None:
    """A source that lost its checkpoint gets the last number from the target."""
    later = Prepared(FACTS).after(4)
    assert later.facts.attempt == 5
    assert later.after(5).facts.attempt == 6
    with pytest.raises(ValueError, match="attempt 4 comes before 5"):
        later.after(4)
    assert isinstance(later.again(LIMITS), RolledBack)


class Migrations(RuleBasedStateMachine):
    """Any sequence of steps, failures and crashes; only one step changes the map."""

    def __init__(self) -> None:
        super().__init__()
        self.state: State = Prepared(FACTS)
        self.head = SourcePosition(0)
        self.now = 0.0
        self.owner = "source"
        self.furthest = Phase.PREPARED

    def step(self, new: State) -> None:
        if self.owner == "target":
            assert isinstance(new, Moved | Done), "after the cut-over there is only forward"
        if not isinstance(self.state, Prepared):
            self.furthest = max(self.furthest, self.state.phase)
        self.state = checkpoint.decode(checkpoint.encode(new))

    def is_in(*states: Any) -> Any:  # type: ignore[misc]
        return precondition(lambda self: isinstance(self.state, states))

    @rule(seconds=st.floats(0, 0.03))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(records=st.integers(1, 30))
    @precondition(lambda self: not isinstance(self.state, CutOver | Deciding | Moved | Done))
    def somebody_writes(self, records: int) -> None:
        self.head = SourcePosition(self.head.lsn + records)

    @rule()
    @is_in(Prepared)
    def begin(self) -> None:
        assert isinstance(self.state, Prepared)
        self.step(self.state.begin(self.head))

    @rule(nbytes=st.integers(0, 10**9), last=st.booleans())
    @is_in(BaseCopy)
    def copy(self, nbytes: int, last: bool) -> None:
        assert isinstance(self.state, BaseCopy)
        self.step(self.state.copied(self.head) if last else self.state.acknowledge(nbytes))

    @rule(records=st.integers(0, 40))
    @is_in(CatchUp)
    def follow(self, records: int) -> None:
        assert isinstance(self.state, CatchUp)
        applied = SourcePosition(min(self.head.lsn, self.state.applied.lsn + records))
        self.step(self.state.progressed(applied, self.head))

    @rule()
    @is_in(CatchUp)
    def fence(self) -> None:
        assert isinstance(self.state, CatchUp)
        state = self.state.progressed(self.state.applied, self.head)
        if state.is_ready(LIMITS):
            self.step(state.fence(LIMITS, self.now))
        else:
            with pytest.raises(StateError):
                state.fence(LIMITS, self.now)

    @rule(lacks=st.integers(0, 1), same=st.booleans())
    @is_in(CutOver)
    def compare(self, lacks: int, same: bool) -> None:
        assert isinstance(self.state, CutOver)
        applied = SourcePosition(max(0, self.state.drain_to.lsn - lacks))
        in_time = self.now <= self.state.deadline
        good = same and in_time and applied >= self.state.drain_to
        state = self.state.compared(applied=applied, source="a", target="a" if same else "b", now=self.now)
        assert isinstance(state, Deciding if good else RolledBack)
        self.step(state)

    @rule(moved=st.booleans())
    @is_in(Deciding)
    def decide(self, moved: bool) -> None:
        assert isinstance(self.state, Deciding)
        self.owner = "target" if moved else "source"
        self.step(self.state.decided(moved=moved, epoch=1, now=self.now))

    @rule()
    @is_in(Moved)
    def clean(self) -> None:
        assert isinstance(self.state, Moved)
        self.step(self.state.cleaned())

    @rule(map_changed=st.booleans())
    @precondition(lambda self: not is_over(self.state))
    def crash(self, map_changed: bool) -> None:
        """May happen between the change of the map and its checkpoint."""
        if isinstance(self.state, Deciding) and map_changed:
            self.owner = "target"
        self.step(recover(self.state, owns=self.owner == "source", known=True, limits=LIMITS))

    @invariant()
    def the_owner_is_the_source_until_the_map_says_otherwise(self) -> None:
        if isinstance(self.state, Moved | Done):
            assert self.owner == "target"
            assert self.furthest >= Phase.DECIDING
        if isinstance(self.state, RolledBack | Prepared | BaseCopy | CatchUp | CutOver):
            assert self.owner == "source"


TestMigrations = Migrations.TestCase
TestMigrations.settings = settings(max_examples=150, stateful_step_count=40)
