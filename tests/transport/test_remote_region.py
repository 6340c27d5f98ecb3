"""RemoteRegion: the value with which a peer addresses memory."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from verbena import errors
from verbena.transport import RemoteRegion

REGION = RemoteRegion(addr=1000, length=100, key=2**64 - 1, epoch=7, offset=10)


@pytest.mark.parametrize(
    ("part", "start", "length"),
    [
        (slice(None), 0, 100),
        (slice(8), 0, 8),
        (slice(8, 16), 8, 8),
        (slice(-8, None), 92, 8),
        (slice(0, -90), 0, 10),
        (slice(100, 100), 100, 0),
        (slice(5, 6, 1), 5, 1),
    ],
)
def test_a_part_lies_inside(part: slice, start: int, length: int) -> None:
    """[a:b] changes the address and the offset together, and negative bounds count from the end."""
    assert REGION[part] == RemoteRegion(1000 + start, length, 2**64 - 1, 7, 10 + start)
    assert len(REGION[part]) == length


@pytest.mark.parametrize(
    "part", [slice(101), slice(8, 4), slice(-101, None), slice(0, 2**70), slice(200, 300)]
)
def test_a_part_outside_is_refused(part: slice) -> None:
    """Unlike those of a list, bounds are never clamped."""
    with pytest.raises(errors.StateError, match="out_of_range"):
        REGION[part]


def test_a_part_has_no_step() -> None:
    """A slice of memory must be contiguous."""
    with pytest.raises(errors.StateError, match="step"):
        REGION[::2]


def test_it_is_a_value() -> None:
    """Equality and hash use the fields; it is immutable and has a readable repr."""
    same = RemoteRegion(1000, 100, 2**64 - 1, 7, 10)
    assert same == REGION
    assert hash(same) == hash(REGION)
    assert RemoteRegion(1000, 100, 2**64 - 1, 8, 10) != REGION
    assert REGION != (1000, 100, 2**64 - 1, 7, 10)
    assert RemoteRegion(1, 2, 3, 4).offset == 0
    with pytest.raises(AttributeError):
        REGION.key = 5  # type: ignore[misc]
    assert repr(REGION[:8]) == f"RemoteRegion(addr=1000, length=8, key={2**64 - 1}, epoch=7, offset=10)"


def test_it_travels() -> None:
    """It can be sent as 40 bytes, and pickled into another program."""
    packed = REGION.to_bytes()
    assert len(packed) == 40
    assert RemoteRegion.from_bytes(packed) == REGION
    with pytest.raises(ValueError, match="a RemoteRegion is 40 bytes, not 39"):
        RemoteRegion.from_bytes(packed[1:])
    program = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    shown = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(REGION), capture_output=True, check=True
    )
    assert shown.stdout.decode().strip() == repr(REGION)
