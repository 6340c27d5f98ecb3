"""The commit of a move in the map: the replies to commands while the map's store is slow, silent or locked.
The map decides which node owns the slots."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kv.cluster import ReplyError, RespConnection
from support.kv.members import Member, two, whole_move

from verbena.errors import setup_error
from verbena.kv.migration.target import MoveTarget
from verbena.shards.envelope import Kind, parse
from verbena.shards.migration import Deciding, Moved, RolledBack
from verbena.shards.stores import Stored

BUDGET_S = 3.0  # for the rest of a cut-over on a loaded machine


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:
    async with two(tmp_path, "tcp") as made:
        set_pause_budget(made[0], BUDGET_S)
        yield made


def set_pause_budget(member: Member, seconds: float) -> None:
    """Sets the budget for moves that begin from now on."""
    moves = member.cluster.moves
    settings = moves.context.settings
    limits = replace(settings.limits, pause_budget_s=seconds)
    moves.context = replace(moves.context, settings=replace(settings, limits=limits))


def ask(member: Member, *words: bytes) -> str:
    """Runs a command at that node and returns its reply, however long it takes."""
    with RespConnection("127.0.0.1", member.cluster.me.port) as wire:
        try:
            return str(wire.run(*words))
        except ReplyError as error:
            return str(error)


KEYS = [b"key:%d" % number for number in range(200)]
CASES = {"the answer is late": Moved, "the answer is lost": Moved, "the request is lost": RolledBack}


@pytest.mark.parametrize("case", CASES)
async def test_commands_do_not_wait_for_a_map_that_is_silent(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Commands wait until the end of the budget, and then get CLUSTERDOWN. No node serves the slot before the
    map has decided."""
    source, target = pair
    store, told = source.cluster.current.store, list[str]()
    swap = store.compare_and_swap

    async def slow(revision: int, new: Any, *, begin_within_s: float | None = None, **more: Any) -> Stored:
        if begin_within_s is None:
            return await swap(revision, new, **more)
        held = None if "request" in case else await swap(revision, new)
        told.append(await asyncio.to_thread(ask, source, b"SET", KEYS[0], b"new"))
        told.append(await asyncio.to_thread(ask, source, b"HGETALL", KEYS[0]))
        if held is not None and "late" in case:
            return held
        raise setup_error("map_store_timeout", operation="use the map store")

    monkeypatch.setattr(store, "compare_and_swap", slow)
    end, _ = await whole_move(source, target, lambda wire, data: None)
    assert isinstance(end, CASES[case])
    assert told == ["CLUSTERDOWN Hash slot not served"] * 2
    assert end.pause_s >= BUDGET_S
    owner, other = (target, source) if isinstance(end, Moved) else (source, target)
    assert await asyncio.to_thread(owner.read, KEYS) == [b"%d," % number * 5000 for number in range(200)]
    assert (await asyncio.to_thread(ask, other, b"GET", KEYS[0])).startswith("MOVED")


async def test_a_map_that_cannot_be_asked_in_time_is_not_asked(
    pair: tuple[Member, Member], tmp_path: Path
) -> None:
    """Another process has locked the store's file: the source rolls back and serves while it is locked."""
    source, target = pair
    waiting: list[asyncio.Future[str]] = []
    with contextlib.closing(sqlite3.connect(tmp_path / "map.db", isolation_level=None)) as other:

        def observe(wire: str, data: bytes) -> None:
            if parse(data).kind is Kind.DIGEST and not waiting:
                other.execute("BEGIN IMMEDIATE")
                waiting.append(asyncio.ensure_future(asyncio.to_thread(ask, source, b"SET", b"x", b"1")))

        end, states = await whole_move(source, target, observe)
        assert isinstance(end, RolledBack)
        assert "the change of the cluster map was not sent" in end.why
        assert isinstance(states[-1], Deciding)
        assert await waiting[0] == "b'OK'"
        assert source.cluster.guard.open_slots == {}
        other.execute("ROLLBACK")
    assert list((await source.cluster.current.store.load()).map.moves)


async def test_a_store_that_is_slow_already_is_not_waited_for(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If reading the store takes longer than commands may wait, the move is rolled back before it blocks
    commands."""
    source, target = pair
    fenced: list[object] = []
    set_pause_budget(source, 1e-6)
    monkeypatch.setattr(source.cluster.guard, "fence", fenced.append)
    end, _ = await whole_move(source, target, lambda wire, data: None)
    assert isinstance(end, RolledBack)
    assert "the map's store takes" in end.why
    assert fenced == []


async def test_a_source_that_stops_during_an_unknown_decision_serves_nothing(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map may have given the slots away: the source does not accept its last commands."""
    source, target = pair
    store, asked = source.cluster.current.store, asyncio.Event()
    swap = store.compare_and_swap

    async def silent(revision: int, new: Any, *, begin_within_s: float | None = None, **more: Any) -> Stored:
        if begin_within_s is None:
            return await swap(revision, new, **more)
        held = await swap(revision, new)
        asked.set()
        await asyncio.Event().wait()
        return held

    monkeypatch.setattr(store, "compare_and_swap", silent)
    moving = asyncio.ensure_future(whole_move(source, target, lambda wire, data: None))
    await asked.wait()
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    with RespConnection("127.0.0.1", source.cluster.me.port) as wire:
        wire.send(b"SET", b"x", b"1")
        wire.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            wire.receive()


@pytest.mark.parametrize("damaged", [False, True])
async def test_large_values_that_change_until_the_end_are_summed_if_that_fits(
    pair: tuple[Member, Member],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damaged: bool,
) -> None:
    """Both ends compute the sum once no write can change the values; a difference inside one value is
    found."""
    source, target = pair
    whole, fence, apply = (
        bytes(1 << 20) + b"right" + bytes(1 << 20),
        source.cluster.guard.fence,
        MoveTarget._apply,
    )

    def late(slots: Any) -> int:
        source.write([(b"large", whole)])
        return fence(slots)

    def wrong(receiver: MoveTarget, payload: bytes) -> None:
        """Replaces a value by another of the same type and length."""
        apply(receiver, payload.replace(b"right", b"wrong"))

    monkeypatch.setattr(source.cluster.guard, "fence", late)
    if damaged:
        monkeypatch.setattr(MoveTarget, "_apply", wrong)
    end, _ = await whole_move(source, target, lambda wire, data: None)
    if damaged:
        assert isinstance(end, RolledBack)
        assert "digests differ" in end.why
    else:
        assert isinstance(end, Moved)
        assert await asyncio.to_thread(target.read, [b"large"]) == [whole]
    assert "too large to sum" not in caplog.text
