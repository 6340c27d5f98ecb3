"""Removes members of collections: shared by hashes, sets and sorted sets."""

from __future__ import annotations

from collections.abc import Iterable

from verbena.kv.server.call import Call
from verbena.kv.values.collections import Hash, Set, SortedSet


def remove_members(
    call: Call, key: bytes, kind: type[Hash | Set | SortedSet], members: Iterable[bytes], *, event: str
) -> int:
    """Removes members, or fields of a hash, and returns how many existed."""
    value = call.db.get(key, kind)
    if value is None:
        return 0
    removed = sum(map(value.discard, members))
    if removed:
        call.db.changed(key, event=event)
    return removed
