"""The rebalancer: computes which slot ranges to move so that every primary has its share. Deterministic:
equal maps and weights give equal moves. After these moves, another run plans none."""

from __future__ import annotations

from collections.abc import Mapping

from verbena.shards.cluster_map import ClusterMap
from verbena.shards.slots import SlotRange, ranges_of

Planned = tuple[SlotRange, str, str]  # slots, source, target


def shares(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Returns the number of slots of each member, in proportion to its weight. Slots left after rounding down
    go to the members with the largest remainders, one each; ties are broken by id."""
    if total and (not weights or min(weights.values()) < 0 or not sum(weights.values())):
        raise ValueError("weights must not be negative, and at least one must be above 0")
    whole = sum(weights.values()) or 1
    exact = {member: total * weight / whole for member, weight in weights.items()}
    found = {member: int(share) for member, share in exact.items()}
    left = total - sum(found.values())
    for member in sorted(weights, key=lambda one: (found[one] - exact[one], one))[:left]:
        found[member] += 1
    return found


def plan(map: ClusterMap, weights: Mapping[str, float] | None = None) -> list[Planned]:
    """Returns the moves, lowest slots first; they move as few slots as possible. `weights`: by member,
    default 1; 0 empties a node. Slots that are already being moved count for their target and are not planned
    again."""
    primaries = [member for member in sorted(map.members) if member not in map.replicas]
    moving = {slot: move.target for move in map.moves.values() for slot in move.slots}
    holding: dict[str, list[int]] = {member: [] for member in primaries}
    for slot, owner in enumerate(map.table):
        now = moving.get(slot, owner)
        if now is not None:
            holding.setdefault(now, []).append(slot)
    wanted = shares(
        sum(map_ for map_ in (len(slots) for slots in holding.values())),
        {member: (weights or {}).get(member, 1.0) for member in primaries},
    )
    gives: list[tuple[int, str]] = []
    for member, slots in holding.items():
        extra = len(slots) - wanted.get(member, 0)
        movable = [slot for slot in slots if slot not in moving]
        if extra > 0:
            gives += [(slot, member) for slot in movable[-extra:]]
    gives.sort()
    moves: list[Planned] = []
    for member in primaries:
        lacks = max(0, wanted[member] - len(holding[member]))
        given, gives = gives[:lacks], gives[lacks:]
        for source in sorted({owner for _, owner in given}):
            ranges = ranges_of(slot for slot, owner in given if owner == source)
            moves += [(slots, source, member) for slots in ranges]
    return sorted(moves)
