"""Slots: the 16384 shards that keys fall into, by CRC16 of their hash tag."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SLOTS = 16384


def slot_of(key: bytes) -> int:
    """The slot of a key: computed from the text in its first braces if that is not empty, else from the whole
    key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS  # CRC-16/XMODEM


@dataclass(frozen=True, order=True)
class SlotRange:
    """Slots from `first` to `last`, both included. ValueError if there are no such slots."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError(f"{self.first}-{self.last} is not a range: the first slot comes after the last")
        if not 0 <= self.first <= self.last < SLOTS:
            raise ValueError(f"{self.first}-{self.last} is not a range of slots 0 to {SLOTS - 1}")

    @classmethod
    def parse(cls, text: str) -> SlotRange:
        """ "7" or "7-9"."""
        first, dash, last = text.strip().partition("-")
        if not text.isascii() or not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r} is neither a slot nor a range such as 0-100")
        return cls(int(first), int(last or first))

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and self.first <= slot <= self.last

    def overlaps(self, other: SlotRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def ranges_of(slots: Iterable[int]) -> tuple[SlotRange, ...]:
    """The fewest ranges that hold exactly these slots, in order."""
    found: list[SlotRange] = []
    first = last = -2
    for slot in sorted(set(slots)):
        if slot != last + 1:
            if first >= 0:
                found.append(SlotRange(first, last))
            first = slot
        last = slot
    return (*found, SlotRange(first, last)) if first >= 0 else ()


def parse_ranges(text: str) -> tuple[SlotRange, ...]:
    """ "0-100,200", as on the command line. ValueError says what is wrong."""
    return ranges_of(slot for part in text.split(",") for slot in SlotRange.parse(part))
