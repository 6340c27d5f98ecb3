"""RemoteArray: a remote region whose parts are rows."""

from __future__ import annotations

import pickle

import numpy
import pytest

from verbena import errors
from verbena.transport import RemoteArray, RemoteRegion
from verbena.transport.memory.form import Form

ARRAY = RemoteArray(1000, 240, 7, 9, 16, form=Form("<f4", (10, 6)))


@pytest.mark.parametrize(
    ("part", "first", "shape"),
    [
        (slice(None), 0, (10, 6)),
        (slice(2, 5), 2, (3, 6)),
        (slice(-2, None), 8, (2, 6)),
        (slice(10, 10), 10, (0, 6)),
        (0, 0, (6,)),
        (9, 9, (6,)),
        (-1, 9, (6,)),
    ],
)
def test_a_part_has_the_bytes_of_its_rows(part: slice | int, first: int, shape: tuple[int, ...]) -> None:
    """Address, offset and length move together, and the key stays."""
    found = ARRAY[part]
    nbytes = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    assert found == RemoteRegion(1000 + 24 * first, nbytes, 7, 9, 16 + 24 * first)
    assert found.shape == shape
    assert found.dtype == ARRAY.dtype


@pytest.mark.parametrize("part", [10, -11, slice(0, 11), slice(5, 2), slice(-11, None), slice(11, 12)])
def test_a_part_outside_is_refused(part: slice | int) -> None:
    """As for a RemoteRegion, bounds are never clamped."""
    with pytest.raises(errors.StateError, match="out_of_range"):
        ARRAY[part]


def test_rows_have_no_step() -> None:
    with pytest.raises(errors.StateError, match="step"):
        ARRAY[::2]


def test_an_element_has_no_rows() -> None:
    element = ARRAY[3][5]
    assert (element.shape, element.nbytes, element.offset) == ((), 4, 16 + 3 * 24 + 5 * 4)
    with pytest.raises(TypeError, match="no dimensions"):
        element[0]


def test_rows_are_iterated() -> None:
    """As those of a numpy array; numpy itself cannot reach them."""
    assert [row.offset for row in ARRAY[:3]] == [16, 40, 64]
    with pytest.raises(TypeError, match=r"session\.pull"):
        numpy.asarray(ARRAY)


def test_it_is_a_value_that_travels() -> None:
    """pickle keeps the form; len() counts rows."""
    restored = pickle.loads(pickle.dumps(ARRAY))
    assert restored == ARRAY
    assert (restored.shape, restored.dtype) == (ARRAY.shape, ARRAY.dtype)
    assert len(ARRAY) == 10
    assert repr(ARRAY) == "<RemoteArray <f4 of shape (10, 6)>"


def test_bytes_become_an_array_without_a_copy() -> None:
    data = bytearray(48)
    array = ARRAY[:2].asarray(data)
    data[0:4] = b"\x00\x00\x80\x3f"
    assert array.shape == (2, 6)
    assert array[0, 0] == 1.0
