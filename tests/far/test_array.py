"""far.Array compared with a numpy array: equal indices give equal results, on every wire."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.far_node import SECRET, Serving

import verbena
from verbena import errors, far
from verbena.transport import Session

SHAPE = (200, 7, 3)
KEYS: list[Any] = [
    0,
    -1,
    np.int64(5),
    slice(None),
    slice(10, 50),
    slice(None, None, 7),
    slice(150, 20, -3),
    slice(5, 5),
    ...,
    (),
    [3, 1, 1, -1],
    [],
    np.array([[0, 1], [5, 0]]),
    np.arange(200) % 3 == 0,
    np.zeros(200, bool),
    np.arange(1400).reshape(200, 7) % 5 == 0,
    (4, 2),
    (4, 2, 1),
    (4, slice(1, 3)),
    (4, slice(None), 1),
    (4, [0, 2]),
    (slice(3, 9), 2),
    (slice(3, 9), slice(None, None, -2), 0),
    ([1, 2, 3], [0, 1, 2]),
    ([1, 2, 3], slice(None), [0, 1, 2]),
    ([[1], [2]], [0, 1, 2], 1),
    (..., 1),
    (..., 2, 4, 1),
    (3, ..., 0),
    (3, None, 2),
]


@pytest.fixture(params=[0, 16 << 10, 8 << 20], ids=["uncached", "small", "large"])
def pair(request: pytest.FixtureRequest, session: Session) -> Iterator[tuple[far.Array, Any]]:
    """A far array and a numpy array with equal values; the small cache holds only a part."""
    near = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    with far.zeros(session, SHAPE, near.dtype, cache_bytes=request.param, block_bytes=2048) as array:
        array[:] = near
        yield array, near


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading_with_an_index_equals_numpy(pair: tuple[far.Array, Any], key: Any) -> None:
    """Shape, type and values are equal."""
    array, near = pair
    found, wanted = array[key], near[key]
    assert type(found) is type(wanted)
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_an_assignment_equals_numpy(pair: tuple[far.Array, Any], key: Any) -> None:
    """Values of the selection's shape and scalars are assigned; after flush() another array on that memory
    has them."""
    array, near = pair
    for value in (np.random.default_rng(1).random(near[key].shape), 42):
        array[key] = near[key] = value
        np.testing.assert_array_equal(array[:], near)
        array.flush()
        other = far.Array(array.session, array.remote, array.dtype, array.shape, cache_bytes=0)
        np.testing.assert_array_equal(other[:], near)


@pytest.mark.parametrize(
    "key",
    [200, -201, [0, 200], [-201], np.ones(199, bool), np.ones((200, 8), bool), 1.5, "x", None, True, [0.5]],
    ids=repr,
)
def test_an_invalid_index_raises_as_in_numpy(pair: tuple[far.Array, Any], key: Any) -> None:
    """The exception is numpy's."""
    array, _ = pair
    with pytest.raises(IndexError):
        array[key]
    with pytest.raises(IndexError):
        array[key] = 0


def test_a_value_of_the_wrong_shape_changes_nothing(pair: tuple[far.Array, Any]) -> None:
    """It is rejected before a byte is written."""
    array, near = pair
    for key in (0, slice(0, 5), [1, 2], (0, slice(0, 2)), (slice(None), 1)):
        with pytest.raises(ValueError, match="broadcast"):
            array[key] = np.zeros(5)
    np.testing.assert_array_equal(array[:], near)


def test_it_has_the_attributes_of_an_array(pair: tuple[far.Array, Any]) -> None:
    """Shape, type, sizes and iteration work, and numpy functions through __array__."""
    array, near = pair
    assert (array.shape, array.dtype, array.ndim) == (near.shape, near.dtype, near.ndim)
    assert (array.nbytes, array.size, len(array)) == (near.nbytes, near.size, len(near))
    assert np.mean(array) == np.mean(near)
    np.testing.assert_array_equal(np.asarray(array, "i4"), near.astype("i4"), strict=True)
    np.testing.assert_array_equal(np.stack(list(array)), near)
    with pytest.raises(ValueError, match="copy"):
        array.__array__(copy=False)
    assert "(200, 7, 3) float64" in repr(array)


def test_reading_returns_a_copy(pair: tuple[far.Array, Any]) -> None:
    """Changes of the copy do not reach the far memory; `+=` on the array does."""
    array, near = pair
    array[3][:] = -1
    row = array[4]
    row[:] = -1
    array[5:7] += 1
    near[5:7] += 1
    np.testing.assert_array_equal(array[:], near)


@pytest.mark.parametrize(
    "dtype", ["?", "u1", ">i4", "c16", "S5", "U3", "M8[ns]", [("x", "f4"), ("y", "i2", (2,))]]
)
def test_every_fixed_size_dtype_works(session: Session, dtype: Any) -> None:
    """Booleans, foreign byte orders, texts, times, structures."""
    near = np.zeros(50, dtype)
    near.view("u1")[:] = np.arange(near.nbytes) % 2
    with far.zeros(session, 50, dtype) as array:
        array[:] = near
        array[10] = near[11]
        near[10] = near[11]
        array.invalidate()
        assert array[:].tobytes() == near.tobytes()
        assert array[3].tobytes() == near[3].tobytes()


@pytest.mark.parametrize("shape", [0, (0, 4), (4, 0), (1,)])
def test_small_and_empty_arrays(session: Session, shape: Any) -> None:
    """An axis may have length 0."""
    with far.zeros(session, shape, "i8") as array:
        array[:] = 5
        np.testing.assert_array_equal(array[:], np.full(shape, 5), strict=True)


def test_adjacent_rows_are_one_transfer(session: Session) -> None:
    """If they are adjacent in the index as well. A transfer has no bytes that were not asked for."""
    with far.zeros(session, (4096, 512), "u1", cache_bytes=0) as array:
        array[100:200] = 1
        assert array.stats()["wire_writes"] == 1
        array[[7, 5, 6, 900, 901]] = 2
        assert array.stats()["wire_writes"] == 4
        _ = array[[5, 6, 7, 900, 901]]
        assert array.stats()["wire_reads"] == 2
        _ = array[0:64:8]
        assert array.stats()["wire_reads"] == 10
        assert array.stats()["wire_read_bytes"] == 13 * 512
        array[0:64:8] = 3
        assert array.stats()["wire_writes"] == 12
        assert array[:64:8].min() == 3
        assert array[1].max() == 0
        before = array.stats()["wire_read_bytes"]
        _ = array[9, 5:9]
        assert array.stats()["wire_read_bytes"] - before == 4


def test_a_cache_hit_needs_no_transfer(session: Session) -> None:
    """Read and written bytes stay cached until they are evicted or invalidated."""
    with far.zeros(session, (1000, 16), "f8") as array:
        array[10:20] = 3
        assert array.stats()["wire_writes"] == 0
        assert array.stats()["wire_reads"] == 0
        assert array[12, 3] == 3
        assert array.stats()["wire_reads"] == 0
        _ = array[:]
        reads = array.stats()["wire_reads"]
        assert array[500].sum() == 0
        assert array.stats()["wire_reads"] == reads
        array.flush()
        assert array.stats()["dirty_bytes"] == 0
        assert (array.stats()["wire_writes"], array.stats()["wire_write_bytes"]) == (1, 10 * 16 * 8)


def test_the_cache_respects_its_capacity(session: Session) -> None:
    """No evicted byte is lost."""
    bound = 16 << 10
    with far.zeros(session, (5000, 4), "i4", cache_bytes=bound, block_bytes=1024) as array:
        near = np.zeros((5000, 4), "i4")
        random = np.random.default_rng(3)
        for turn in range(400):
            row, length = int(random.integers(5000)), int(random.integers(1, 100))
            array[row : row + length] = near[row : row + length] = turn
            assert array.stats()["cached_bytes"] <= bound
            row = int(random.integers(5000))
            np.testing.assert_array_equal(array[row], near[row])
        assert array.stats()["evictions"] > 0
        array.invalidate()
        np.testing.assert_array_equal(array[:], near)


def test_flush_and_invalidate_synchronize_two_caches(session: Session, serving: Serving) -> None:
    """A reader sees flushed values after its own invalidate(), and not before."""
    name = f"shared {session.wire}"
    writer = far.zeros(session, 100, "i8", name=name)
    with verbena.sync.connect(serving.address, secret=SECRET) as other:
        reader = far.attach(other, name)
        assert reader[5] == 0
        writer[5] = 1
        reader.invalidate()
        assert reader[5] == 0
        writer.flush()
        assert reader[5] == 0
        reader.invalidate()
        assert reader[5] == 1
        reader[6] = 2
        reader.invalidate(discard=True)
        assert reader[6] == 0
        reader.close()
    far.free(writer)


def test_prefetched_rows_are_hits(session: Session) -> None:
    """They are fetched in the background, up to half of the cache."""
    with far.zeros(session, (4096, 64), "f8", cache_bytes=1 << 20) as array:
        array[:] = 1
        array.invalidate()
        array.prefetch(slice(0, 512))
        assert array[:512].sum() == 512 * 64
        if session.wire != "shm":  # where a fetch is a copy, and one in advance would be a second one
            assert array.stats()["cached_bytes"] >= 512 * 64 * 8
        array.prefetch(slice(None))
        array.prefetch([1, 4000, 5])
        array.prefetch(7)
        array.prefetch(slice(0, 0))
        array.close()
        assert array.stats()["cached_bytes"] <= 1 << 20
    with far.zeros(session, 10, "f8", cache_bytes=0) as uncached:
        uncached.prefetch()
        assert uncached.stats()["wire_reads"] == 0


def test_threads_share_an_array(session: Session) -> None:
    """Each changes its own column, which shares rows and blocks with the others'; no update is lost."""
    threads = 4
    with far.zeros(session, (300, threads), "i8", cache_bytes=8192, block_bytes=1024) as array:
        wrong: list[str] = []

        def work(column: int) -> None:
            for turn in range(1, 4):
                for row in range(0, 300, 10):
                    array.prefetch(slice(row + 10, row + 30))
                    array[row : row + 10, column] = turn * 1000 + row
                    if (array[row : row + 10, column] != turn * 1000 + row).any():
                        wrong.append(f"thread {column}, row {row}")
                array.flush()

        workers = [threading.Thread(target=work, args=(column,)) for column in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong
        array.invalidate()
        wanted = 3000 + np.repeat(np.arange(0, 300, 10), 10)
        np.testing.assert_array_equal(array[:], np.tile(wanted, (threads, 1)).T)


def test_an_array_survives_a_broken_wire(serving: Serving) -> None:
    """Reads, writes and prefetches continue while the session changes wires."""
    with (
        verbena.sync.connect(serving.address, secret=SECRET) as session,
        far.zeros(session, (2000, 256), "i4", cache_bytes=256 << 10) as array,
    ):
        for turn in range(6):
            session.break_link()
            array.prefetch(slice(0, 200))
            array[::2] = turn
            assert (array[::2] == turn).all()
            array.flush()
        array.invalidate()
        assert (array[::2] == 5).all()
        assert (array[1::2] == 0).all()
        assert session._native.links > 1


def test_a_closed_array_raises_closederror(session: Session) -> None:
    """close() flushes first."""
    with far.zeros(session, 10, "i4") as array:
        array[3] = 7
    with pytest.raises(errors.ClosedError):
        array[3]
    with pytest.raises(errors.ClosedError):
        array[3] = 1
    array.close()
    with far.Array(session, array.remote, "i4", 10) as again:
        assert again[3] == 7
    again = far.Array(session, array.remote, "i4", 10)
    again[4] = 8
    again.__exit__(KeyError, KeyError(), None)  # as an error in the block would
    assert far.Array(session, array.remote, "i4", 10)[4] == 8


def test_invalid_arrays_are_rejected(session: Session) -> None:
    """Object dtypes, shapes without an axis, arrays longer than their region, and blocks of size 0."""
    array = far.zeros(session, 10, "i4")
    for dtype, shape in (("O", 1), ("V0", 1), ("i4", ()), ("i4", -1), ("i4", 11)):
        with pytest.raises(errors.StateError):
            far.Array(session, array.remote, dtype, shape)
    with pytest.raises(errors.StateError, match="block_bytes"):
        far.Array(session, array.remote, "i4", 10, block_bytes=0)
    before = far.stat(session)["allocations"]
    with pytest.raises(errors.StateError):
        far.zeros(session, 10, "O")
    assert far.stat(session)["allocations"] == before


def test_without_numpy_the_error_names_the_package(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy installs it."""
    from verbena.far.lazy import numpy

    numpy.cache_clear()
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(errors.UnavailableError, match="pip install numpy"):
        far.zeros(session, 10, "i4")
    numpy.cache_clear()


def test_take_and_put_move_rows(pair: tuple[far.Array, Any]) -> None:
    """In any order and repeated, as numpy's take() does; put() broadcasts, and the last value stays."""
    array, near = pair
    rows = np.random.default_rng(8).integers(-200, 200, size=(30, 40))
    np.testing.assert_array_equal(array.take(rows), near[rows], strict=True)
    out = np.empty((3, 7, 3))
    assert array.take([5, 5, -1], out) is out
    np.testing.assert_array_equal(out, near[[5, 5, -1]])
    values = np.random.default_rng(9).random((500, 7, 3))
    picks = np.random.default_rng(10).integers(50, size=500)
    array.put(picks, values)
    near[picks] = values
    array.put([3, -4], 7)
    near[[3, -4]] = 7
    np.testing.assert_array_equal(array[:], near)
    assert array.take([]).shape == (0, 7, 3)
    assert array.take(9).shape == (7, 3)


def test_take_and_put_check_their_arguments(pair: tuple[far.Array, Any]) -> None:
    """Nothing is moved."""
    array, near = pair
    for rows in ([200], [-201], [0.5], [True]):
        with pytest.raises(IndexError):
            array.take(rows)
        with pytest.raises(IndexError):
            array.put(rows, 0)
    for out in (np.empty((2, 7, 3), "f4"), np.empty((3, 7, 3)), np.empty((2, 7, 6))[:, :, ::2]):
        with pytest.raises(ValueError, match="take: out must be"):
            array.take([0, 1], out)
    with pytest.raises(ValueError, match="broadcast"):
        array.put([0, 1], np.zeros(5))
    np.testing.assert_array_equal(array[:], near)


def test_a_time_limit_holds_for_every_access(serving: Serving) -> None:
    """Without a link, each access ends in time; afterwards the array works again."""
    with verbena.sync.connect(serving.address, secret=SECRET, wire="shm") as session:
        array = far.zeros(session, (1000, 512), "f8", cache_bytes=1 << 20, timeout_s=0.2)
        bare = far.Array(session, array.remote, "f8", array.shape, cache_bytes=0, timeout_s=0.2)
        array[5] = 1
        session.break_link(rest_s=3.0)
        assert session.wait_for(verbena.SessionState.DISCONNECTED, 10)
        accesses: list[Any] = [
            lambda: array[500],
            lambda: array.take([1, 900]),
            lambda: array[:],
            array.flush,
            lambda: bare[0],
            lambda: bare[:],
            lambda: bare.put([1, 2], 3),
        ]
        for access in accesses:
            with pytest.raises(errors.TimedOutError):
                access()
        assert array[5, 0] == 1
        assert session.wait_for(verbena.SessionState.CONNECTED, 20)
        array.timeout_s = None
        array.flush()
        assert bare[5].sum() == 512


async def test_the_asyncio_form_awaits_accesses(serving: Serving) -> None:
    """The same names; the loop is free meanwhile."""
    near = np.random.default_rng(11).random((500, 16))
    async with (
        verbena.connect(serving.address, secret=SECRET) as session,
        await far.aio.zeros(session, near.shape, name="awaited") as array,
    ):
        await array.set(slice(None), near)
        picks = [3, 1, 499, 3]
        found, part, row = await asyncio.gather(array.take(picks), array[10:20, 2], array[7])
        np.testing.assert_array_equal(found, near[picks])
        np.testing.assert_array_equal(part, near[10:20, 2])
        np.testing.assert_array_equal(row, near[7])
        await array.put([1, 2], np.zeros((2, 16)))
        await array.flush()
        other = await far.aio.attach(session, "awaited")
        assert (await other[1:3]).sum() == 0
        await other.close()
        assert (await far.aio.stat(session))["names"]["awaited"] == near.nbytes
        await far.aio.free(array)


def test_the_asyncio_form_has_the_same_parameters() -> None:
    """Of every function and of every method that both forms have."""
    names = [(far, far.aio, name) for name in ("zeros", "attach", "free", "stat")]
    names += [(far.Array, far.aio.Array, name) for name in ("take", "put", "prefetch", "flush", "invalidate")]
    for ours, theirs, name in names:
        one, two = (list(inspect.signature(getattr(form, name)).parameters) for form in (ours, theirs))
        assert one == two
