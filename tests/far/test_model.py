"""Any sequence of reads, assignments, flushes, prefetches and invalidations leaves what numpy would have."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.far_node import Serving

import verbena
from verbena import far
from verbena.far.allocator import ALIGNMENT, FirstFit
from verbena.far.ranges import Ranges
from verbena.transport import Session

ROWS, COLUMNS = 40, 5
rows = st.integers(-ROWS, ROWS - 1)
ends = st.none() | st.integers(-ROWS - 3, ROWS + 3)
slices = st.builds(slice, ends, ends, st.none() | st.integers(-5, 5).filter(bool))
firsts = st.one_of(
    rows,
    slices,
    st.lists(rows, max_size=8),
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array),
)
columns = st.one_of(
    st.integers(-COLUMNS, COLUMNS - 1), st.sampled_from([slice(None), slice(1, 4), slice(None, None, -2)])
)
keys = firsts | st.tuples(firsts, columns)
values = st.integers(0, 1 << 30)
steps = st.one_of(
    st.tuples(st.just("read"), keys, st.none()),
    st.tuples(st.just("assign"), keys, values),
    st.tuples(st.just("assign many"), keys, values),
    st.tuples(st.just("prefetch"), slices, st.none()),
    st.tuples(st.sampled_from(["flush", "invalidate"]), st.none(), st.none()),
)


@pytest.fixture(scope="module")
def remote(serving: Serving) -> Any:
    with verbena.connect_blocking(serving.address, secret="correct horse battery staple") as session:
        yield session, far.allocate(session, "i4", (ROWS, COLUMNS)).remote


@given(
    st.lists(steps, max_size=25),
    st.sampled_from([(0, 1), (64, 64), (64, 16), (200, 24), (4096, 100), (1 << 16, 4096)]),
)
def test_any_sequence_of_operations_equals_numpy(
    remote: tuple[Session, Any], script: list[Any], sizes: tuple[int, int]
) -> None:
    """The cache may be as small as one block, whose borders split rows and elements."""
    session, region = remote
    near = np.zeros((ROWS, COLUMNS), "i4")
    far.Array(session, region, "i4", near.shape, cache_bytes=0)[:] = 0
    with far.Array(session, region, "i4", near.shape, cache_bytes=sizes[0], block_bytes=sizes[1]) as array:
        for what, key, value in script:
            if what == "read":
                np.testing.assert_array_equal(array[key], near[key], strict=True)
            elif what == "assign":
                array[key] = near[key] = value
            elif what == "assign many":
                many = value + np.arange(near[key].size, dtype="i4").reshape(near[key].shape)
                array[key] = near[key] = many
            elif what == "prefetch":
                array.prefetch(key)
            else:
                getattr(array, what)()
            assert array.stats().get("cached_bytes", 0) <= sizes[0]
    with far.Array(session, region, "i4", near.shape, cache_bytes=0) as landed:
        np.testing.assert_array_equal(landed[:], near)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))), st.integers(0, 50), st.integers(0, 20))
def test_ranges_are_a_set(added: list[tuple[int, int]], start: int, length: int) -> None:
    """Offsets may be added in any order; the ranges never touch."""
    ranges, model = Ranges(), set[int]()
    for first, count in added:
        ranges.add(first, first + count)
        model |= set(range(first, first + count))
    known = list(ranges)
    assert {offset for a, b in known for offset in range(a, b)} == model
    assert all(a < b for a, b in known)
    assert all(b < c for (_, b), (c, _) in itertools.pairwise(known))
    asked = set(range(start, start + length))
    assert ranges.covers(start, start + length) == (asked <= model)
    assert {o for a, b in ranges.gaps(start, start + length) for o in range(a, b)} == asked - model


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5 * ALIGNMENT)), max_size=40), st.integers(0, 3))
def test_allocations_never_overlap(script: list[tuple[bool, int]], odd: int) -> None:
    """First fit; freed neighbours merge; None only if no free part is large enough."""
    size = 20 * ALIGNMENT + odd
    space, taken = FirstFit(size), dict[int, int]()
    for is_free, number in script:
        if is_free and taken:
            offset = sorted(taken)[number % len(taken)]
            space.free(offset)
            del taken[offset]
            continue
        found = space.allocate(number)
        if found is None:
            assert space.largest_free < max(1, -(-number // ALIGNMENT)) * ALIGNMENT
            continue
        assert found % ALIGNMENT == 0
        assert found + number <= size
        assert all(found + number <= start or start + length <= found for start, length in taken.items())
        taken[found] = max(number, 1)
    for offset in taken:
        space.free(offset)
    assert (space.free_bytes, space.largest_free) == (size, size)
