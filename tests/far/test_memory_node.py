"""Allocations of a memory node: access and lifetime."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from support.far_node import SECRET, SIZE, Serving

import verbena
from verbena import errors, far
from verbena.far import messages
from verbena.transport import Session


def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds; fails after ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_memory_is_freed_with_its_session(serving: Serving) -> None:
    """All unnamed allocations are freed, and the next session gets zeroed memory."""
    with verbena.sync.connect(serving.address, secret=SECRET) as session:
        first = far.zeros(session, SIZE // 2, "u1")
        first[:] = 255
        first.flush()
        far.zeros(session, 10, "u1")
        assert far.stat(session)["allocations"] == 2
    until(lambda: serving.memory.stat()["free"] == SIZE)
    with verbena.sync.connect(serving.address, secret=SECRET) as session:
        again = far.zeros(session, SIZE, "u1")
        assert not again[:].any()


def test_a_named_array_outlives_its_session(serving: Serving) -> None:
    """It keeps type and shape until it is freed."""
    with verbena.sync.connect(serving.address, secret=SECRET) as session:
        with far.zeros(session, (5, 2), [("x", "f4"), ("y", "i2", (2,))], name="points") as array:
            array[3] = (1.5, [2, 3])
        with pytest.raises(errors.StateError, match="points"):
            far.zeros(session, 1, "i4", name="points")
    with verbena.sync.connect(serving.address, secret=SECRET, wire="iwarp") as session:
        assert far.stat(session)["names"] == {"points": 80}
        with far.attach(session, "points") as found:
            assert (found.shape, found.dtype) == (array.shape, array.dtype)
            assert found[3, 0]["x"] == 1.5
            assert found.name == "points"
        far.free(found)
        assert far.stat(session)["names"] == {}
        with pytest.raises(errors.StateError, match="points"):
            far.attach(session, "points")
        with pytest.raises(errors.StateError, match="no such allocation"):
            far.free(found)


def test_unnamed_memory_is_private_to_its_session(session: Session, serving: Serving) -> None:
    """Another session can neither read nor free it, even with its id and region."""
    mine = far.zeros(session, 10, "i4")
    with verbena.sync.connect(serving.address, secret=SECRET) as other:
        theirs = far.Array(other, mine.remote, "i4", 10, cache_bytes=0)
        with pytest.raises(errors.DeniedError):
            theirs[0]
        theirs._allocation = mine._allocation
        with pytest.raises(errors.StateError, match="another session"):
            far.free(theirs)
    mine[0] = 1
    mine.flush()


def test_freed_memory_cannot_be_accessed(session: Session) -> None:
    """The region is revoked before its memory is allocated again."""
    array = far.zeros(session, 10, "i4")
    far.free(array)
    stale = far.Array(session, array.remote, "i4", 10, cache_bytes=0)
    with pytest.raises(errors.DeniedError):
        stale[0]
    assert far.zeros(session, 10, "i4")[0] == 0


def test_a_full_node_reports_its_free_bytes(session: Session) -> None:
    """An allocation above the limit is refused; the memory of freed arrays can be allocated again, whatever
    their order."""
    free = far.stat(session)["free"]
    pieces = [far.zeros(session, free // 4, "u1") for _ in range(4)]
    with pytest.raises(errors.BusyError, match="0 are free"):
        far.zeros(session, free // 4, "u1")
    far.free(pieces[0])
    far.free(pieces[2])
    half = far.zeros(session, free // 2, "u1")
    half[-3:] = 9
    np.testing.assert_array_equal(half[-4:], [0, 9, 9, 9])


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        (messages.ALLOCATE, b""),
        (messages.ALLOCATE, b"\xff"),
        (messages.ALLOCATE, b"[]"),
        (messages.ALLOCATE, messages.encode(nbytes=-1)),
        (messages.ALLOCATE, messages.encode(nbytes="1")),
        (messages.ALLOCATE, messages.encode(nbytes=True)),
        (messages.ALLOCATE, messages.encode(nbytes=1, name="")),
        (messages.ALLOCATE, messages.encode(nbytes=1, name=7)),
        (messages.ALLOCATE, messages.encode(nbytes=1, name="x" * 1000)),
        (messages.ALLOCATE, messages.encode(nbytes=1, name="bell\a")),
        (messages.ALLOCATE, messages.encode(nbytes=1, note="x" * 5000)),
        (messages.FREE, messages.encode()),
        (messages.FREE, messages.encode(id="1")),
    ],
)
def test_malformed_requests_are_rejected(session: Session, method: str, payload: bytes) -> None:
    """With a reason; nothing is allocated, and the session goes on."""
    before = far.stat(session)
    with pytest.raises(errors.RemoteError):
        session.sync.call(method, payload)
    assert far.stat(session) == before


def test_only_a_memory_nodes_array_can_be_freed(session: Session) -> None:
    """An array on a region of the program itself cannot."""
    array = far.zeros(session, 10, "i4")
    with pytest.raises(errors.StateError, match="memory node"):
        far.free(far.Array(session, array.remote, "i4", 10))
