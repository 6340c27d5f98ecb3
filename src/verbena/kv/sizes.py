"""How much memory a key takes: its item, and what Python holds of a collection, by some of its members."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena.kv.values import Hash, SortedSet

if TYPE_CHECKING:
    from verbena.kv.call import Database
    from verbena.kv.values import Value

_SORTED_ENTRY = sys.getsizeof((0.0, b"")) + 8  # its pair, and the place in the list


def memory_of(database: Database, key: bytes, samples: int) -> int | None:
    """Bytes; None: no such key. `samples` 0: every member is looked at."""
    details = database.details(key)
    if details is None:
        return None
    value = database.any(key)
    return int(details[1]) + (
        0 if value is None or isinstance(value, bytes) else collection_bytes(value, samples)
    )


def collection_bytes(value: Value, samples: int) -> int:
    if isinstance(value, SortedSet):
        inner = sys.getsizeof(value.scores) + len(value) * (_SORTED_ENTRY + sys.getsizeof(0.0))
        return inner + _members(value.scores, len(value), samples)
    own = sys.getsizeof(value)
    if isinstance(value, Hash):
        pairs = ((field, item) for field, item in value.items())
        return own + _members(itertools.chain.from_iterable(pairs), 2 * len(value), samples * 2)
    return own + _members(value, len(value), samples)


def _members(members: Iterable[bytes], count: int, samples: int) -> int:
    if not count:
        return 0
    looked_at = list(itertools.islice(members, samples) if samples else members)
    return sum(sys.getsizeof(member) for member in looked_at) * count // len(looked_at)
