"""Checks whether a history of one register is linearizable: whether some order of its operations, each at one
moment between its call and its return, explains it. Every write must have a distinct value. A write without
an answer may have happened at any time after its call, or never.

The method is that of Gibbons and Korach: the operations of a value form a zone, from their earliest return to
their latest call. If the return comes first, the register must have held the value all that time (a forward
zone); otherwise one moment is enough (a backward zone). The history is linearizable exactly if no two forward
zones overlap, no backward zone lies within a forward one, and no value is read before its write was
called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

INITIAL = None


@dataclass(frozen=True)
class Operation:
    """One operation. `returned` is infinite if the outcome is unknown: then only writes are considered."""

    kind: str  # "read" or "write"
    value: object
    called: float
    returned: float = math.inf


def fault(history: Iterable[Operation]) -> str:
    """Returns a description of what is not linearizable, or an empty string."""
    writes: dict[object, Operation] = {}
    reads: dict[object, list[Operation]] = {}
    for one in history:
        if one.kind == "write":
            if one.value in writes or one.value is INITIAL:
                raise ValueError(f"{one.value!r} is written twice")
            writes[one.value] = one
        elif not math.isinf(one.returned):
            reads.setdefault(one.value, []).append(one)
    writes[INITIAL] = Operation("write", INITIAL, -math.inf, -math.inf)
    forward: list[tuple[float, float, object]] = []
    backward: list[tuple[float, float, object]] = []
    for value, readers in reads.items():
        if value not in writes:
            return f"{value!r} was read, and nobody wrote it"
        if early := [one for one in readers if one.returned < writes[value].called]:
            return f"{value!r} was read at {early[0].returned}, before it was written"
    for value, write in writes.items():
        group = [write, *reads.get(value, [])]
        if len(group) == 1 and math.isinf(write.returned) and write.returned > 0:
            continue  # it may never have happened
        first_end = min(one.returned for one in group)
        last_start = max(one.called for one in group)
        if first_end < last_start:
            forward.append((first_end, last_start, value))
        else:
            backward.append((last_start, first_end, value))
    forward.sort(key=lambda zone: zone[:2])
    for (_, end, value), (start, _, other) in itertools.pairwise(forward):
        if start < end:
            return f"{value!r} and {other!r} must both have been there between {start} and {end}"
    for start, end, value in backward:
        for begin, finish, other in forward:
            if begin < start and end < finish:
                return f"{value!r} came and went while {other!r} must have been there"
    return ""
