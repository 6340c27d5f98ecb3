"""Any sequence of reads, assignments, flushes, prefetches and invalidations leaves what numpy would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.far_node import Serving

import verbena
from verbena import far
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
    with verbena.sync.connect(serving.address, secret="correct horse battery staple") as session:
        yield session, far.zeros(session, (ROWS, COLUMNS), "i4").remote


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
