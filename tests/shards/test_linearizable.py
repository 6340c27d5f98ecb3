"""The linearizability checker: known histories, and every small history against an exhaustive search."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv.linearizable import INITIAL, Operation, fault


def write(value: int, called: float, returned: float = math.inf) -> Operation:
    return Operation("write", value, called, returned)


def read(value: object, called: float, returned: float) -> Operation:
    return Operation("read", value, called, returned)


@pytest.mark.parametrize(
    ("history", "good"),
    [
        ([], True),
        ([read(INITIAL, 0, 1), write(1, 2, 3), read(1, 4, 5)], True),
        ([write(1, 0, 1), read(INITIAL, 2, 3)], False),  # a lost write
        ([write(1, 0, 10), read(1, 1, 2), read(INITIAL, 3, 4)], False),  # seen, then not
        ([write(1, 0, 10), read(INITIAL, 1, 2), read(1, 3, 4)], True),
        ([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], False),  # a stale read
        ([write(1, 0, 5), write(2, 0, 5), read(1, 6, 7), read(2, 8, 9)], False),
        ([write(1, 0, 5), write(2, 0, 5), read(2, 6, 7), read(2, 8, 9)], True),
        ([write(1, 0), read(1, 5, 6), read(INITIAL, 7, 8)], False),  # unanswered, and seen
        ([write(1, 0), read(INITIAL, 5, 6), read(1, 7, 8)], True),
        ([write(1, 0), read(INITIAL, 5, 6)], True),
        ([read(1, 0, 1), write(1, 2, 3)], False),  # from the future
        ([read(7, 0, 1)], False),  # out of nothing
    ],
)
def test_known_histories_are_classified(history: list[Operation], good: bool) -> None:
    assert (fault(history) == "") is good


def explained(history: list[Operation]) -> bool:
    """By trying every order, with every choice of unanswered writes."""
    sure = [one for one in history if not math.isinf(one.returned)]
    unsure = [one for one in history if math.isinf(one.returned) and one.kind == "write"]
    for count in range(len(unsure) + 1):
        for chosen in itertools.combinations(unsure, count):
            for order in itertools.permutations([*sure, *chosen]):
                if any(b.returned < a.called for i, a in enumerate(order) for b in order[i + 1 :]):
                    continue
                value: object = INITIAL
                for one in order:
                    if one.kind == "write":
                        value = one.value
                    elif one.value != value:
                        break
                else:
                    return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    count = draw(st.integers(1, 5))
    times = draw(st.permutations(range(2 * count)))
    found: list[Operation] = []
    for number in range(count):
        called, returned = sorted(times[2 * number : 2 * number + 2])
        if draw(st.booleans()):
            end = math.inf if draw(st.integers(0, 3)) == 0 else float(returned)
            found.append(write(number, called, end))
        else:
            found.append(read(draw(st.sampled_from([INITIAL, *range(count)])), called, returned))
    return found


@given(histories())
@settings(max_examples=400)
def test_it_agrees_with_a_search_of_all_orders(history: list[Operation]) -> None:
    assert (fault(history) == "") == explained(history)


def test_a_value_is_written_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        fault([write(1, 0, 1), write(1, 2, 3)])
