"""The cluster map: members, owners of slots, replicas and moves, at one epoch. An immutable value: every
change is a pure function from a map to the next one, whose epoch is one higher. A change that the map does
not allow raises StateError."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from verbena.errors import VerbenaError, setup_error
from verbena.shards.slots import SLOTS, SlotRange, ranges_of

# What reading a value of another shape, or of too much nesting, raises.
_NOT_A_MAP = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Member:
    """A node: its id of 40 hexadecimal digits, its address for clients and its address for sessions. `key`:
    with it the node proves that it is this member, 64 hexadecimal digits, new at each start; never shown."""

    id: str
    host: str
    port: int
    sessions: str  # host:port
    name: str = ""
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if re.fullmatch(r"([0-9a-f]{64})?", self.key) is None:
            raise ValueError(f"the key of member {self.id} is not 64 hexadecimal digits")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Move:
    """Slots that are being moved. The source owns them until finish_move()."""

    id: str  # 32 hexadecimal digits
    slots: SlotRange
    source: str
    target: str
    aborting: bool = False


@dataclass(frozen=True)
class ClusterMap:
    """`owners`: slots in order, without overlaps. `replicas`: replica → primary. `moves`: by id."""

    epoch: int = 0
    members: Mapping[str, Member] = None  # type: ignore[assignment]
    owners: tuple[tuple[SlotRange, str], ...] = ()
    replicas: Mapping[str, str] = None  # type: ignore[assignment]
    moves: Mapping[str, Move] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("members", "replicas", "moves"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))

    # Queries

    @cached_property
    def table(self) -> tuple[str | None, ...]:
        """The owner of each slot."""
        owners: list[str | None] = [None] * SLOTS
        for slots, owner in self.owners:
            owners[slots.first : slots.last + 1] = [owner] * len(slots)
        return tuple(owners)

    def owner_of(self, slot: int) -> str | None:
        return self.table[slot]

    def slots_of(self, member: str) -> tuple[SlotRange, ...]:
        return tuple(slots for slots, owner in self.owners if owner == member)

    def replicas_of(self, primary: str) -> list[str]:
        return sorted(replica for replica, copied in self.replicas.items() if copied == primary)

    @property
    def is_covered(self) -> bool:
        """Every slot has an owner."""
        return sum(len(slots) for slots, _ in self.owners) == SLOTS

    # Changes

    def meet(self, member: Member) -> ClusterMap:
        """Adds a node, or replaces its addresses."""
        return self._next(members={**self.members, member.id: member})

    def forget(self, member: str) -> ClusterMap:
        self._require(member)
        if self.slots_of(member):
            raise _error(f"{member} owns slots {_format(self.slots_of(member))}: move them first")
        if self.replicas_of(member) or any(member in (m.source, m.target) for m in self.moves.values()):
            raise _error(f"{member} has replicas or takes part in a move")
        members = {id: known for id, known in self.members.items() if id != member}
        replicas = {id: primary for id, primary in self.replicas.items() if id != member}
        return self._next(members=members, replicas=replicas)

    def assign(self, slots: Iterable[int], member: str) -> ClusterMap:
        """Assigns slots that have no owner."""
        wanted = set(slots)
        self._require(member)
        taken = [slot for slot in sorted(wanted) if self.table[slot] is not None]
        if taken:
            raise _error(f"slot {taken[0]} already has an owner")
        if member in self.replicas:
            raise _error(f"{member} is a replica and cannot own slots")
        return self._given(wanted, member)

    def unassign(self, slots: Iterable[int], member: str) -> ClusterMap:
        wanted = set(slots)
        for slot in sorted(wanted):
            if self.table[slot] != member:
                raise _error(f"{member} does not own slot {slot}")
        self._require_still(wanted)
        return self._given(wanted, None)

    def give(self, slots: Iterable[int], member: str) -> ClusterMap:
        """Changes the owner of slots at once: the operator has moved their keys."""
        wanted = set(slots)
        self._require(member)
        self._require_still(wanted)
        if member in self.replicas:
            raise _error(f"{member} is a replica and cannot own slots")
        return self._given(wanted, member)

    def begin_move(self, move: Move) -> ClusterMap:
        self._require(move.source)
        self._require(move.target)
        if move.source == move.target:
            raise _error("source and target are the same node")
        if move.target in self.replicas:
            raise _error(f"{move.target} is a replica and cannot own slots")
        if any(self.table[slot] != move.source for slot in move.slots):
            raise _error(f"{move.source} does not own all of slots {move.slots}")
        if move.id in self.moves:
            raise _error(f"move {move.id} is already running")
        self._require_still(move.slots)
        return self._next(moves={**self.moves, move.id: move})

    def ask_abort(self, move_id: str) -> ClusterMap:
        """Requests that the source give the move up; the move may finish first."""
        move = self._move(move_id)
        return self._next(moves={**self.moves, move_id: replace(move, aborting=True)})

    def finish_move(self, move_id: str) -> ClusterMap:
        """The cut-over: the target owns the slots from this epoch on."""
        move = self._move(move_id)
        if any(self.table[slot] != move.source for slot in move.slots):
            raise _error(f"{move.source} no longer owns all of slots {move.slots}")
        moves = {id: other for id, other in self.moves.items() if id != move_id}
        return replace(self._given(set(move.slots), move.target), moves=moves)

    def abort_move(self, move_id: str) -> ClusterMap:
        self._move(move_id)
        return self._next(moves={id: move for id, move in self.moves.items() if id != move_id})

    def replicate(self, replica: str, primary: str) -> ClusterMap:
        self._require(replica)
        self._require(primary)
        if primary in self.replicas or replica == primary:
            raise _error(f"{primary} is not a primary")
        if self.slots_of(replica) or self.replicas_of(replica):
            raise _error(f"{replica} owns slots or has replicas")
        if any(replica == move.target for move in self.moves.values()):
            raise _error(f"slots are being moved to {replica}")
        return self._next(replicas={**self.replicas, replica: primary})

    def confirm(self) -> ClusterMap:
        """The same content at the next epoch, so that a pending swap of the present map fails."""
        return self._next()

    def promote(self, replica: str) -> ClusterMap:
        """A replica replaces its primary, which becomes its replica. Moves from and to the primary are
        removed."""
        primary = self.replicas.get(replica)
        if primary is None:
            raise _error(f"{replica} is not a replica")
        replicas = {id: replica if copied == primary else copied for id, copied in self.replicas.items()}
        del replicas[replica]
        replicas[primary] = replica
        owners = tuple((slots, replica if owner == primary else owner) for slots, owner in self.owners)
        moves = {id: move for id, move in self.moves.items() if primary not in (move.source, move.target)}
        return self._next(replicas=replicas, owners=owners, moves=moves)

    # Encoding

    def encode(self) -> bytes:
        """JSON, with the members' keys, for the map store; equal maps give equal bytes."""
        value = self.describe()
        for member in value["members"]:
            member["key"] = self.members[member["id"]].key
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    def describe(self) -> dict[str, Any]:
        """The values that JSON can hold, without the members' keys, for people and programs."""
        moves = [{**asdict(move), "slots": str(move.slots)} for _, move in sorted(self.moves.items())]
        members = [
            {name: value for name, value in asdict(member).items() if name != "key"}
            for _, member in sorted(self.members.items())
        ]
        return {
            "epoch": self.epoch,
            "members": members,
            "owners": [[str(slots), owner] for slots, owner in self.owners],
            "replicas": dict(sorted(self.replicas.items())),
            "moves": moves,
        }

    @classmethod
    def decode(cls, data: bytes) -> ClusterMap:
        """ProtocolError if it is not a map."""
        try:
            value = json.loads(data)
            members = {one["id"]: Member(**one) for one in value["members"]}
            owners = tuple((SlotRange.parse(slots), str(owner)) for slots, owner in value["owners"])
            moves = {
                one["id"]: Move(**{**one, "slots": SlotRange.parse(one["slots"])}) for one in value["moves"]
            }
            replicas = {str(replica): str(primary) for replica, primary in value["replicas"].items()}
            found = cls(int(value["epoch"]), members, owners, replicas, moves)
        except _NOT_A_MAP as error:
            detail = f"{type(error).__name__}: {error}"
            raise setup_error("bad_cluster_map", operation="read the cluster map", detail=detail) from error
        named = {owner for _, owner in owners} | set(found.replicas) | set(found.replicas.values())
        in_order = all(a.last < b.first for (a, _), (b, _) in itertools.pairwise(owners))
        if not in_order or not named <= set(members):
            detail = "owners overlap or are not members"
            raise setup_error("bad_cluster_map", operation="read the cluster map", detail=detail)
        return found

    # Private

    def _next(self, **changes: Any) -> ClusterMap:
        return replace(self, epoch=self.epoch + 1, **changes)

    def _given(self, slots: set[int], member: str | None) -> ClusterMap:
        by_owner: dict[str, list[int]] = {}
        for slot, owner in enumerate(self.table):
            now = member if slot in slots else owner
            if now is not None:
                by_owner.setdefault(now, []).append(slot)
        owners = [(found, owner) for owner, theirs in by_owner.items() for found in ranges_of(theirs)]
        return self._next(owners=tuple(sorted(owners)))

    def _require(self, member: str) -> None:
        if member not in self.members:
            raise _error(f"{member} is not a member")

    def _require_still(self, slots: Iterable[int]) -> None:
        wanted = set(slots)
        for move in self.moves.values():
            if not wanted.isdisjoint(move.slots):
                raise _error(f"slots {move.slots} are already being moved by {move.id}")

    def _move(self, move_id: str) -> Move:
        if move_id not in self.moves:
            raise _error(f"no such move: {move_id}")
        return self.moves[move_id]


def _format(ranges: Iterable[SlotRange]) -> str:
    return ",".join(map(str, ranges))


def _error(detail: str) -> VerbenaError:
    return setup_error("map_refused", operation="change the cluster map", detail=detail)
