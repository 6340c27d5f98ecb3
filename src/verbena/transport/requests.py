"""Encodes requests for both forms of a session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Union

from verbena import _native
from verbena.transport.memory.region import RemoteRegion
from verbena.verbs import Opcode

if TYPE_CHECKING:
    from typing_extensions import Buffer

Offsets = Union["Sequence[int]", "Buffer"]  # of a batch's pieces

FOREVER = -1.0  # the native operations' timeout_s of None

_WORD = 2**64 - 1

Progress = Callable[[int], object]

method_number = functools.lru_cache(maxsize=4096)(_native.transport.method_number)


def atomic_payload(
    native: _native.transport.Session, remote: RemoteRegion, opcode: Opcode, compare_add: int, swap: int
) -> bytes:
    """Checks that the region allows an atomic, and encodes the request."""
    native.check(remote, "atomic", 8)
    return _native.transport.atomic_request(
        remote.key, remote.offset, opcode, compare_add & _WORD, swap & _WORD
    )
