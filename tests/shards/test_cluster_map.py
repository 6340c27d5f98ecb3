"""The cluster map: a change is a function from a map to the next; what is not allowed changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from verbena.errors import ProtocolError, StateError
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.rebalance import plan, shares
from verbena.shards.slots import SLOTS, SlotRange

NODES = [f"{number:040x}" for number in range(1, 5)]


def member(id: str) -> Member:
    return Member(id, "127.0.0.1", 7000 + int(id, 16), f"127.0.0.1:{17000 + int(id, 16)}", f"n{int(id, 16)}")


def of(*ids: str) -> ClusterMap:
    found = ClusterMap()
    for id in ids:
        found = found.meet(member(id))
    return found


def test_a_slot_has_one_owner() -> None:
    a, b = NODES[:2]
    held = of(a, b).assign(range(100), a)
    assert (held.epoch, held.owner_of(5), held.owner_of(100), held.is_covered) == (3, a, None, False)
    with pytest.raises(StateError, match="already has an owner"):
        held.assign([99], b)
    with pytest.raises(StateError, match="not a member"):
        held.assign([100], NODES[3])
    with pytest.raises(StateError, match="does not own"):
        held.unassign([5], b)
    assert held.unassign([5], a).owner_of(5) is None


def test_a_move_changes_the_owner_only_when_it_is_finished() -> None:
    a, b = NODES[:2]
    held = of(a, b).assign(range(SLOTS), a).begin_move(Move("0" * 32, SlotRange(10, 20), a, b))
    assert held.owner_of(15) == a
    with pytest.raises(StateError, match="being moved"):
        held.begin_move(Move("1" * 32, SlotRange(20, 30), a, b))
    with pytest.raises(StateError, match="being moved"):
        held.unassign([20], a)
    done = held.finish_move("0" * 32)
    assert (done.owner_of(15), done.owner_of(21), done.moves, done.epoch) == (b, a, {}, held.epoch + 1)
    assert done.owners == ((SlotRange(0, 9), a), (SlotRange(10, 20), b), (SlotRange(21, SLOTS - 1), a))
    off = held.ask_abort("0" * 32)
    assert off.moves["0" * 32].aborting
    assert off.abort_move("0" * 32).owner_of(15) == a
    with pytest.raises(StateError, match="no such move"):
        done.finish_move("0" * 32)


def test_a_promoted_replica_owns_the_slots_of_its_primary() -> None:
    a, b, c, d = NODES
    held = of(a, b, c, d).assign(range(SLOTS), a).replicate(b, a).replicate(c, a)
    held = held.begin_move(Move("0" * 32, SlotRange(0, 0), a, d))
    with pytest.raises(StateError, match="replica"):
        held.begin_move(Move("1" * 32, SlotRange(1, 1), a, b))
    now = held.promote(b)
    assert set(now.table) == {b}
    assert now.replicas == {a: b, c: b}
    assert now.moves == {}
    with pytest.raises(StateError, match="not a replica"):
        now.promote(b)
    with pytest.raises(StateError, match="not a primary"):
        now.replicate(d, a)
    with pytest.raises(StateError, match="owns slots"):
        now.forget(b)
    assert c not in now.forget(c).members


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"epoch":1,"members":[],"moves":[],"owners":[["0-5","x"]],"replicas":{}}',
        b'{"epoch":1,"members":[],"moves":[],"owners":[["5-0","x"]],"replicas":{}}',
    ],
)
def test_invalid_maps_are_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ClusterMap.decode(data)


class Changes(RuleBasedStateMachine):
    """Any order of changes keeps the map valid."""

    def __init__(self) -> None:
        super().__init__()
        self.map = of(*NODES)
        self.moves = 0

    def attempt(self, change: object, *arguments: object) -> None:
        before = self.map.encode()
        try:
            new = change(*arguments)  # type: ignore[operator]
        except StateError:
            assert self.map.encode() == before
            return
        assert new.epoch == self.map.epoch + 1
        self.map = new

    slots = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: SlotRange(t[0], t[0] + t[1]))
    node = st.sampled_from(NODES)

    @rule(slots=slots, node=node)
    def assign(self, slots: SlotRange, node: str) -> None:
        self.attempt(self.map.assign, slots, node)

    @rule(slots=slots, node=node)
    def unassign(self, slots: SlotRange, node: str) -> None:
        self.attempt(self.map.unassign, slots, node)

    @rule(slots=slots, source=node, to=node)
    def begin(self, slots: SlotRange, source: str, to: str) -> None:
        self.moves += 1
        self.attempt(self.map.begin_move, Move(f"{self.moves:032x}", slots, source, to))

    @rule(number=st.integers(1, 10), finish=st.booleans())
    def end(self, number: int, finish: bool) -> None:
        change = self.map.finish_move if finish else self.map.abort_move
        self.attempt(change, f"{number:032x}")

    @rule(replica=node, primary=node)
    def replicate(self, replica: str, primary: str) -> None:
        self.attempt(self.map.replicate, replica, primary)

    @rule(replica=node)
    def promote(self, replica: str) -> None:
        self.attempt(self.map.promote, replica)

    @rule(node=node)
    def forget(self, node: str) -> None:
        self.attempt(self.map.forget, node)

    @rule(node=node)
    def meet(self, node: str) -> None:
        self.attempt(self.map.meet, member(node))

    @invariant()
    def is_consistent(self) -> None:
        assert ClusterMap.decode(self.map.encode()) == self.map
        owners = {owner for owner in self.map.table if owner is not None}
        assert owners <= set(self.map.members)
        assert not owners & set(self.map.replicas)
        assert not set(self.map.replicas.values()) & set(self.map.replicas)
        moving = [slot for move in self.map.moves.values() for slot in move.slots]
        assert len(moving) == len(set(moving))
        for move in self.map.moves.values():
            assert {self.map.owner_of(slot) for slot in move.slots} == {move.source}
            assert move.target not in self.map.replicas


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=60, stateful_step_count=30)


def test_shares_sum_to_all_slots() -> None:
    assert shares(10, {"a": 1, "b": 1, "c": 1}) == {"a": 4, "b": 3, "c": 3}
    assert shares(10, {"a": 0, "b": 2, "c": 3}) == {"a": 0, "b": 4, "c": 6}
    with pytest.raises(ValueError, match="above 0"):
        shares(1, {"a": 0})


@pytest.mark.parametrize("weights", [None, {NODES[0]: 0.0}, {NODES[1]: 2.0, NODES[2]: 0.5}])
def test_the_plan_of_the_rebalancer_is_complete(weights: dict[str, float] | None) -> None:
    """Equal maps give equal moves, as few slots as possible move, and afterwards every primary has its
    share."""
    held = of(*NODES[:3]).assign(range(SLOTS), NODES[0]).meet(member(NODES[3])).replicate(NODES[3], NODES[0])
    moves = plan(held, weights)
    assert moves == plan(held, weights)
    other_way = replace(held, members=dict(reversed(held.members.items())))
    assert moves == plan(other_way, dict(reversed(weights.items())) if weights else None)
    wanted = shares(SLOTS, {node: (weights or {}).get(node, 1.0) for node in NODES[:3]})
    assert sum(len(slots) for slots, _, _ in moves) == SLOTS - wanted[NODES[0]]
    for number, (slots, source, target) in enumerate(moves):
        move = Move(f"{number:032x}", slots, source, target)
        held = held.begin_move(move)
        assert plan(held, weights) == moves[number + 1 :]
        held = held.finish_move(move.id)
    assert plan(held, weights) == []
    assert {node: sum(map(len, held.slots_of(node))) for node in NODES[:3]} == wanted
