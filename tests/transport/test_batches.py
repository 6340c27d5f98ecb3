"""read_many() and write_many(): many pieces of the peer's memory at once, in both forms, on every wire."""

from __future__ import annotations

import array
import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import verbena
from verbena import errors
from verbena.transport import Region, SessionState, Settings
from verbena.verbs import Access

ROWS, ROW = 3000, 96
BlockingSession = verbena.sync.Session


@pytest.fixture(scope="module")
def listener() -> Iterator[verbena.sync.Listener]:
    with verbena.sync.listen("127.0.0.1:0") as listening:
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
def session(request: pytest.FixtureRequest, listener: verbena.sync.Listener) -> Iterator[BlockingSession]:
    with verbena.sync.connect(listener.address, wire=request.param) as connected:
        yield connected


@pytest.fixture
def region(listener: verbena.sync.Listener) -> Iterator[Region]:
    with listener.node.allocate(ROWS * ROW) as allocated:
        allocated[:] = np.random.default_rng(1).integers(256, size=ROWS * ROW, dtype="u1")
        yield allocated


def rows_of(region: Region) -> Any:
    return np.frombuffer(region, "u1").reshape(ROWS, ROW)


def test_offsets_select_pieces_of_equal_length(session: BlockingSession, region: Region) -> None:
    """In any order, repeated, more than one wave holds; from an array, a list or a range."""
    near = rows_of(region)
    picks = np.random.default_rng(2).integers(ROWS, size=5000)
    found = np.empty((5000, ROW), "u1")
    session.read_many(region.remote, picks * ROW, into=found)
    np.testing.assert_array_equal(found, near[picks])
    for offsets in ([96, 0, 192], (96, 0, 192), array.array("q", [96, 0, 192]), np.array([96, 0, 192], "u2")):
        three = bytearray(3 * ROW)
        session.read_many(region.remote, offsets, into=three)
        assert bytes(three) == near[[1, 0, 2]].tobytes()
    part = bytearray(2 * 8)
    session.read_many(region.remote[ROW:], range(0, 16, 8), into=part)
    assert bytes(part) == near[1, :16].tobytes()
    session.read_many(region.remote, [], into=bytearray())


def test_a_sequence_of_regions_is_read_one_after_another(session: BlockingSession, region: Region) -> None:
    """The pieces may have different lengths, and belong to different regions."""
    with session_regions(region) as other:
        remotes = [region.remote[10:13], other.remote[:5], region.remote[:0], region.remote[100:102]]
        found = bytearray(10)
        session.read_many(remotes, into=found)
        near = bytes(region)
        assert bytes(found) == near[10:13] + b"other" + near[100:102]
        session.write_many(remotes, buffer=b"abcHELLOxy")
        assert bytes(other[:5]) == b"HELLO"
        assert (bytes(region[10:13]), bytes(region[100:102])) == (b"abc", b"xy")


def session_regions(region: Region) -> Region:
    other = region.node.allocate(64)
    other[:5] = b"other"
    return other


def test_the_last_of_overlapping_writes_wins(session: BlockingSession, region: Region) -> None:
    """Pieces are written in order."""
    near = rows_of(region).copy()
    picks = np.random.default_rng(3).integers(ROWS // 10, size=4000)
    values = np.random.default_rng(4).integers(256, size=(4000, ROW), dtype="u1")
    session.write_many(region.remote, picks * ROW, buffer=values)
    near[picks] = values
    np.testing.assert_array_equal(rows_of(region), near)


def test_long_pieces_are_split(session: BlockingSession, listener: verbena.sync.Listener) -> None:
    """A piece may be longer than any message."""
    size = (1 << 20) + 123
    with listener.node.allocate(2 * size) as big:
        near = np.frombuffer(big, "u1")
        near[:] = np.random.default_rng(5).integers(256, size=2 * size, dtype="u1")
        found = np.empty((2, size), "u1")
        session.read_many(big.remote, [size, 0], into=found)
        np.testing.assert_array_equal(found, near.reshape(2, size)[::-1])
        session.write_many(big.remote, [0, size], buffer=found)
        np.testing.assert_array_equal(found, near.reshape(2, size))


def test_wrong_arguments_name_what_is_wrong(session: BlockingSession, region: Region) -> None:
    """Nothing is transferred."""
    before, remote = bytes(region), region.remote
    for offsets in ([0, ROWS * ROW - 7], [0, -8], [1 << 62, 0]):
        with pytest.raises(errors.VerbenaError, match="offset") as raised:
            session.write_many(remote, offsets, buffer=bytes(16))
        assert raised.value.code == "out_of_range"
    with pytest.raises(ValueError, match="10 bytes, which is no multiple of 3"):
        session.read_many(remote, [0, 1, 2], into=bytearray(10))
    with pytest.raises(ValueError, match="10 bytes, and the regions have 12"):
        session.read_many([remote[:12]], into=bytearray(10))
    with pytest.raises(TypeError, match="remote is int"):
        session.read_many(7, into=bytearray(8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offsets is"):
        session.read_many(remote, "0", into=bytearray(8))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        session.read_many(remote, [0.5], into=bytearray(8))  # type: ignore[list-item]
    with pytest.raises(BufferError, match="into is read-only"):
        session.read_many(remote, [0], into=bytes(8))
    with pytest.raises(ValueError, match=r"buffer is not C-contiguous: pass numpy\.ascontiguousarray"):
        session.write_many(remote, [0, 8], buffer=np.zeros((4, 8), "u1")[:, ::2])
    assert bytes(region) == before


def test_what_the_peer_does_not_allow_is_denied(session: BlockingSession, region: Region) -> None:
    """A read-only region, and one that was closed; the session goes on."""
    with region.node.expose(bytearray(64), access=Access.REMOTE_READ) as read_only:
        session.read_many(read_only.remote, [0, 8], into=bytearray(16))
        with pytest.raises(errors.DeniedError):
            session.write_many(read_only.remote, [0, 8], buffer=bytes(16))
    closed = region.node.allocate(64)
    remote = closed.remote
    session.read_many(remote, [0, 8], into=bytearray(16))
    closed.close()
    with pytest.raises(errors.DeniedError):
        session.read_many(remote, [0, 8] * 100, into=bytearray(1600))
    session.read_many(region.remote, [0, 8], into=bytearray(16))


def test_a_batch_survives_a_broken_link(session: BlockingSession, region: Region) -> None:
    """Interrupted waves are repeated on the next link."""
    near = rows_of(region)
    picks = np.random.default_rng(6).integers(ROWS, size=50_000)
    found = np.empty((len(picks), ROW), "u1")
    for _ in range(5):
        found[:] = 0
        session.break_link()
        session.read_many(region.remote, picks * ROW, into=found)
        np.testing.assert_array_equal(found, near[picks])
    assert session.links > 1


def test_a_time_limit_ends_a_batch(session: BlockingSession, region: Region) -> None:
    """The buffer is free again when it ends."""
    session.break_link(rest_s=60.0)  # and there is no other wire
    assert session.wait_for(SessionState.DISCONNECTED, 10)
    into = bytearray(1600)
    began = time.monotonic()
    with pytest.raises(errors.TimedOutError, match="0 of 200"):
        session.read_many(region.remote, [0, 8] * 100, into=into, timeout_s=0.2)
    assert time.monotonic() - began < 5
    into.extend(b"x")  # no view is left


def test_one_sided_operations_alone_keep_the_link() -> None:
    """They show the peer nothing, so heartbeats continue beside them."""
    hasty = Settings(heartbeat_interval_ms=100, peer_timeout_ms=1500)
    with (
        verbena.sync.listen("127.0.0.1:0", config=hasty) as peer,
        verbena.sync.connect(peer.address, config=hasty) as session,
        peer.node.allocate(1 << 20) as region,
    ):
        into, end = bytearray(1 << 16), time.monotonic() + 2.5
        while time.monotonic() < end:
            session.read_many(region.remote, range(0, 1 << 20, 4096), into=into)
        assert session.links == 1


async def test_the_asyncio_form_leaves_the_loop_free(listener: verbena.sync.Listener, region: Region) -> None:
    """Several batches run at once; one that waits for a link can be cancelled."""
    near = rows_of(region)
    picks = np.random.default_rng(7).integers(ROWS, size=(4, 2000))
    async with verbena.connect(listener.address) as session:
        found = np.empty((4, 2000, ROW), "u1")
        reads = (session.read_many(region.remote, picks[i] * ROW, into=found[i]) for i in range(4))
        await asyncio.gather(*reads)
        np.testing.assert_array_equal(found, near[picks])
        await session.write_many(region.remote, [8, 0], buffer=b"12345678abcdefgh")
        assert bytes(region[:16]) == b"abcdefgh12345678"
    async with verbena.connect(listener.address, wire="shm") as session:
        session.break_link(rest_s=60.0)
        assert await asyncio.to_thread(session.sync.wait_for, SessionState.DISCONNECTED, 10)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.read_many(region.remote, [0], into=bytearray(8)), 0.1)
