"""User buffers that stay registered between transfers, and when they are deregistered."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import verbena
from verbena.transport import Node, Region, Session, Settings
from verbena.transport.memory.owners import owner_of
from verbena.transport.observe.metrics.counters import Registrations

MIB = 1 << 20


class Pair:
    """A session between two nodes of this process over TCP, with a registration cache."""

    def __init__(self, session: Session, region: Region) -> None:
        self.session, self.region = session, region

    @property
    def kept(self) -> Registrations:
        return self.session.node.snapshot().registrations


@pytest.fixture(params=[{}])
async def pair(request: pytest.FixtureRequest) -> Any:
    settings = Settings(
        **({"recv_buffer_pool_size": 256, "keep_registrations": True, "max_mr_size": 3 * MIB} | request.param)
    )
    async with (
        await verbena.listen("127.0.0.1:0", config=Settings(recv_buffer_pool_size=256)) as listener,
        await verbena.connect(listener.address, wire="iwarp", config=settings) as session,
    ):
        yield Pair(session, listener.node.allocate(16 * MIB))


async def test_the_same_array_is_registered_once(pair: Pair) -> None:
    """For put and get, as a whole or as a view of the same part."""
    array = np.arange(MIB, dtype=np.uint8)
    await pair.session.write(pair.region.remote, array)
    array[:] = 7
    await pair.session.write(pair.region.remote, array)
    await pair.session.read_into(pair.region.remote, array)
    await pair.session.write(pair.region.remote, array[:])
    assert (pair.kept.hits, pair.kept.misses, pair.kept.entries, pair.kept.bytes) == (3, 1, 1, MIB)
    await pair.session.write(pair.region.remote, array[4096:])
    assert (pair.kept.misses, pair.kept.entries) == (2, 2)
    assert bytes(pair.region[:MIB]) == b"\x07" * MIB


async def test_the_bound_is_kept_by_letting_the_oldest_go(pair: Pair) -> None:
    arrays = [np.full(MIB, number, np.uint8) for number in range(4)]
    for array in arrays:
        await pair.session.write(pair.region.remote, array)
    assert (pair.kept.evictions, pair.kept.entries, pair.kept.bytes) == (1, 3, 3 * MIB)
    await pair.session.write(pair.region.remote, arrays[3])
    assert pair.kept.hits == 1
    await pair.session.write(pair.region.remote, arrays[0])
    assert (pair.kept.hits, pair.kept.evictions) == (1, 2)


async def test_data_beyond_the_bound_moves_in_pieces_and_is_not_kept(pair: Pair) -> None:
    data = np.random.default_rng(1).integers(0, 256, 10 * MIB + 77, np.uint8)
    await pair.session.write(pair.region.remote, data)
    back = np.zeros_like(data)
    await pair.session.read_into(pair.region.remote, back)
    assert np.array_equal(back, data)
    assert pair.kept == Registrations()


async def test_memory_that_is_freed_is_let_go(pair: Pair) -> None:
    """Only the program's references count; a later array at the same address is registered again."""
    array = np.zeros(MIB, np.uint8)
    gone = weakref.ref(array)
    await pair.session.write(pair.region.remote, array)
    pair.session.node._native.sweep_registrations()
    assert pair.kept.entries == 1
    del array
    gc.collect()
    pair.session.node._native.sweep_registrations()
    assert gone() is None
    assert (pair.kept.entries, pair.kept.bytes) == (0, 0)


async def test_an_array_that_is_kept_does_not_move(pair: Pair) -> None:
    """numpy refuses to resize an array whose buffer is exported."""
    array = np.zeros(MIB, np.uint8)
    await pair.session.write(pair.region.remote, array)
    with pytest.raises(ValueError, match="resize"):
        array.resize(2 * MIB)


async def test_what_the_program_may_resize_is_not_held(pair: Pair) -> None:
    data = bytearray(MIB)
    await pair.session.write(pair.region.remote, data)
    data.extend(b"more")
    view = memoryview(data)
    await pair.session.write(pair.region.remote, view)
    view.release()
    data.clear()
    assert pair.kept == Registrations()


async def test_a_transfer_that_fails_keeps_nothing(pair: Pair) -> None:
    array = np.zeros(MIB, np.uint8)
    pair.region.close()
    remote = pair.session.node.expose(bytearray(8)).remote  # belongs to the other end
    with pytest.raises(verbena.errors.VerbenaError):
        await pair.session.write(remote, array[:8])
    assert pair.kept.entries == 0


async def test_closing_the_node_lets_everything_go(pair: Pair) -> None:
    array = np.zeros(MIB, np.uint8)
    gone = weakref.ref(array)
    await pair.session.write(pair.region.remote, array)
    await pair.session.close()
    del array
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("pair", [{"keep_registrations": None}], indirect=True)
async def test_where_registering_is_free_nothing_is_kept(pair: Pair) -> None:
    array = np.zeros(MIB, np.uint8)
    for _ in range(2):
        await pair.session.write(pair.region.remote, array)
    assert pair.kept == Registrations()


def owners() -> Iterator[tuple[Any, Any]]:
    array = np.zeros((4, 4))
    yield array, array
    yield array[1:].T, array
    yield np.frombuffer(bytearray(8), np.uint8), None
    yield memoryview(b"abc"), None
    yield bytearray(3), None
    yield (text := b"text"), text


def test_the_owner_is_the_array_that_has_the_memory() -> None:
    for buffer, owner in owners():
        assert owner_of(buffer) is owner


def test_a_node_without_sessions_has_figures() -> None:
    with Node(Settings(recv_buffer_pool_size=64)) as node:
        assert node.snapshot().registrations == Registrations()
    assert node.snapshot().registrations == Registrations()
