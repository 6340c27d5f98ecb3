"""Imported for its effect: every command on data types is declared."""

from verbena.kv.commands import (
    bitfields,
    bitmaps,
    hashes,
    list_moves,
    lists,
    sets,
    sorted_algebra,
    sorted_pops,
    sorted_ranges,
    sorted_sets,
)

__all__ = [
    "bitfields",
    "bitmaps",
    "hashes",
    "list_moves",
    "lists",
    "sets",
    "sorted_algebra",
    "sorted_pops",
    "sorted_ranges",
    "sorted_sets",
]
