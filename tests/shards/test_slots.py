"""Slots of keys, slot ranges, and positions in logs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.shards.positions import SourcePosition, TargetPosition
from verbena.shards.slots import SLOTS, SlotRange, parse_ranges, ranges_of, slot_of


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"123456789", 0x31C3 % SLOTS),  # the check value of CRC-16/XMODEM
        (b"foo", 12182),
        (b"", 0),
        (b"{user1000}.following", slot_of(b"user1000")),
        (b"foo{}{bar}", 8363),
        (b"foo{{bar}}zap", slot_of(b"{bar")),
        (b"foo{bar}{zap}", slot_of(b"bar")),
        (b"foo}{", slot_of(b"foo}{")),
    ],
)
def test_a_key_falls_into_the_slot_of_its_hash_tag(key: bytes, slot: int) -> None:
    """The text in the first braces decides, unless it is empty or the braces do not close."""
    assert slot_of(key) == slot


@given(st.sets(st.integers(0, SLOTS - 1), max_size=300))
def test_ranges_contain_exactly_the_slots(slots: set[int]) -> None:
    found = ranges_of(slots)
    assert {slot for one in found for slot in one} == slots
    assert all(a.last + 1 < b.first for a, b in itertools.pairwise(found))
    if slots:
        assert parse_ranges(",".join(map(str, found))) == found


@pytest.mark.parametrize("text", ["", "-1", "5-", "9-3", "16384", "0-16384", "x", "1,,2", "1.5", "٣"])
def test_invalid_ranges_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"slot"):
        parse_ranges(text)


def test_a_range_contains_its_slots() -> None:
    some = SlotRange(3, 5)
    assert (list(some), len(some), 5 in some, 6 in some, str(some)) == ([3, 4, 5], 3, True, False, "3-5")
    assert some.overlaps(SlotRange(5, 9))
    assert not some.overlaps(SlotRange(6, 9))


def test_positions_of_different_logs_cannot_be_compared() -> None:
    """LSNs of source and target are unrelated."""
    here, there = SourcePosition(5), TargetPosition(5)
    for compare in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__sub__"):
        with pytest.raises(TypeError, match="another log"):
            getattr(here, compare)(there)
        with pytest.raises(TypeError):
            getattr(here, compare)(5)
    with pytest.raises(TypeError):
        _ = here == there
    assert SourcePosition(7) - here == 2
    assert here < SourcePosition(6)
    assert max(here, SourcePosition(9)) == SourcePosition(9)
    with pytest.raises(ValueError, match="-1"):
        SourcePosition(-1)
