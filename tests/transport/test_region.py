"""A region is a buffer: Python's own types and numpy read and write it."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import verbena
from verbena.verbs import Access


@pytest.fixture(scope="module")
def node() -> Iterator[verbena.Node]:
    with verbena.sync.listen("127.0.0.1:0") as listener:
        yield listener.node


def test_a_region_is_a_buffer_of_bytes(node: verbena.Node) -> None:
    """memoryview, bytes, numpy.frombuffer, indices and slices, as of a bytearray."""
    with node.allocate(16) as region:
        region[:5] = b"hello"
        region[5] = 33
        assert bytes(region[:6]) == b"hello!"
        assert bytes(region) == b"hello!".ljust(16, b"\0")
        assert region[0] == ord("h")
        memoryview(region)[8:] = np.arange(2, dtype="f4").tobytes()
        np.testing.assert_array_equal(np.frombuffer(region, "f4", offset=8), [0, 1])
        region[:] = np.arange(4, dtype="i4")
        np.testing.assert_array_equal(np.frombuffer(region, "i4"), [0, 1, 2, 3])
        assert len(region) == memoryview(region).nbytes == 16
        with pytest.raises(ValueError, match="contiguous"):
            region[:4] = np.zeros(8, "u1")[::2]
        with pytest.raises(ValueError, match="different"):
            region[:4] = b"longer"


def test_an_exposed_buffer_is_the_programs_own(node: verbena.Node) -> None:
    """Of any type; a region of read-only memory is read-only."""
    array = np.zeros((4, 2), "i8")
    with node.expose(array, access=Access.ALL) as region:
        memoryview(region)[8:16] = (7).to_bytes(8, "little")
        assert array[0, 1] == 7
    with node.expose(b"constant") as region:
        assert memoryview(region).readonly
        assert bytes(region) == b"constant"
        with pytest.raises(TypeError, match="read-only"):
            region[0] = 1


def test_memory_with_gaps_is_refused_with_the_remedy(node: verbena.Node) -> None:
    """In node.expose() and in the payload of a call."""
    gaps = np.zeros((4, 4), "u1")[:, ::2]
    with pytest.raises(ValueError, match=r"expose: buffer .* pass numpy\.ascontiguousarray"):
        node.expose(gaps)
    with pytest.raises(BufferError, match="expose: buffer is read-only"):
        node.expose(b"constant", access=Access.ALL)
    with verbena.sync.listen("127.0.0.1:0") as peer, verbena.sync.connect(peer.address) as session:
        with pytest.raises(ValueError, match=r"call: payload is not C-contiguous: pass numpy\."):
            session.call("any", gaps)
        with pytest.raises(TypeError, match="call: payload is int"):
            session.call("any", 5)  # type: ignore[arg-type]


def test_views_outlive_a_closed_region(node: verbena.Node) -> None:
    """The memory is released with the last view; a closed region gives no new one."""
    region = node.allocate(1 << 20)
    view = memoryview(region)
    array = np.frombuffer(region, "i4")
    region.close()
    with pytest.raises(BufferError, match="closed"):
        memoryview(region)
    array[:] = 5
    del region
    gc.collect()
    assert view[:4] == (5).to_bytes(4, "little")
    buffer = bytearray(64)
    exposed = node.expose(buffer)
    inner = memoryview(exposed)
    exposed.close()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    inner.release()
    buffer.extend(b"x")


def test_a_region_in_a_cycle_is_collected(node: verbena.Node) -> None:
    """With its memory, although views of it and the region refer to each other."""
    for _ in range(50):
        holder: list[object] = [node.allocate(4096)]
        holder += [holder, memoryview(holder[0])]  # type: ignore[arg-type]
        del holder
    regions = node._native.regions
    gc.collect()
    assert node._native.regions < regions


def test_a_region_cannot_be_pickled(node: verbena.Node) -> None:
    """Its `remote` can."""
    with node.allocate(8) as region:
        with pytest.raises(TypeError, match="remote"):
            pickle.dumps(region)
        assert pickle.loads(pickle.dumps(region.remote)) == region.remote
