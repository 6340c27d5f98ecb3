"""Translates an index into the rows to fetch and a local index: indexing the rows with `local` yields the
result of the original index."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verbena.far.lazy import numpy


@dataclass(frozen=True)
class Selection:
    """`rows` is a range with a positive step, or a flat array of integers, which may be negative or outside
    of the array. It was an index of shape `index_shape`."""

    rows: Any
    local: tuple[Any, ...]
    index_shape: tuple[int, ...] | None = None

    @property
    def is_one_row(self) -> bool:
        """Whether the first axis is indexed by an integer and disappears."""
        return type(self.local[0]) is int

    @property
    def takes_whole_rows(self) -> bool:
        return all(_is_everything(key) for key in self.local[1:])

    def unique(self, length: int) -> Selection:
        """Returns the selection with sorted and unique rows. IndexError if one is not in range(length)."""
        if self.index_shape is None:
            return self
        np, index = numpy(), self.rows
        outside = (index < -length) | (index >= length)
        if outside.any():
            raise IndexError(f"index {index[outside][0]} is out of bounds for axis 0 with size {length}")
        rows, places = np.unique(np.where(index < 0, index + length, index), return_inverse=True)
        return Selection(rows, (places.reshape(self.index_shape), *self.local[1:]), self.index_shape)


def select(key: Any, shape: tuple[int, ...]) -> Selection:
    """Translates `key` for an array of this shape. Raises IndexError as numpy does."""
    keys = key if isinstance(key, tuple) else (key,)
    first, *rest = _without_leading_ellipsis(keys, len(shape))
    if first is None or isinstance(first, (bool, str)):
        raise IndexError("the first axis is indexed by integers, slices, and integer or boolean arrays")
    if isinstance(first, slice):
        rows = range(*first.indices(shape[0]))
        if rows.step < 0:
            return Selection(rows[::-1], (slice(None, None, -1), *rest))
        return Selection(rows, (slice(None), *rest))
    try:
        number = operator.index(first)
    except TypeError:
        return _by_array(first, rest, shape)
    return Selection(range(*_row(number, shape[0])), (0, *rest))


def runs(rows: Any) -> Iterator[tuple[int, int]]:
    """Yields positions [start, stop) of consecutive numbers in sorted `rows`."""
    if isinstance(rows, range) and rows.step == 1:
        if rows:
            yield 0, len(rows)
        return
    np = numpy()
    rows = np.asarray(rows)
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    for start, stop in itertools.pairwise((0, *breaks.tolist(), len(rows))):
        if start < stop:
            yield start, stop


def _by_array(first: Any, rest: list[Any], shape: tuple[int, ...]) -> Selection:
    np = numpy()
    index = np.asarray(first)
    if index.size == 0 and not isinstance(first, np.ndarray):
        index = index.astype(np.intp)
    if index.dtype == np.bool_ and index.ndim:
        if index.shape != shape[: index.ndim]:
            raise IndexError(f"a boolean index of shape {index.shape} for an array of shape {shape}")
        index, *others = np.nonzero(index)
        rest = [*others, *rest]
    elif not np.issubdtype(index.dtype, np.integer):
        raise IndexError(f"an index is an integer, a slice, or an integer or boolean array, not {first!r}")
    rows = np.ascontiguousarray(index, np.int64).reshape(-1)
    return Selection(rows, (np.arange(len(rows)).reshape(index.shape), *rest), index.shape)


def _without_leading_ellipsis(keys: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    if not keys:
        return (slice(None),)
    if keys[0] is not Ellipsis:
        return keys
    taken = sum(_axes(key) for key in keys[1:])
    # An ellipsis that stands for no axis still turns a scalar result into an array, in any position.
    return (slice(None), *keys) if taken < ndim else (*keys[1:], Ellipsis)


def _axes(key: Any) -> int:
    if key is None:
        return 0
    if isinstance(key, (int, slice)):
        return 1
    array = numpy().asarray(key)
    return array.ndim if array.dtype == bool else 1


def _row(number: int, length: int) -> tuple[int, int]:
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis 0 with size {length}")
    number += length if number < 0 else 0
    return number, number + 1


def _is_everything(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, slice) and key == slice(None))
