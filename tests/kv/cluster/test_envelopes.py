"""The same move on every wire: the envelopes are identical bytes, and a broken wire changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.kv.members import (
    HAS_QUIC,
    MIGRATION,
    PIECE_NOTICE,
    SEGMENT,
    SLOTS,
    Member,
    offered_move,
    prepared_move,
    two,
    whole_move,
)

from verbena import transport
from verbena.errors import RemoteError
from verbena.kv.cluster import node as cluster_node
from verbena.kv.cluster.member_sessions import METHOD, MemberSessions
from verbena.kv.migration import cut_over
from verbena.kv.migration.copy_path import CopyPathState
from verbena.kv.migration.source import MoveSource
from verbena.kv.migration.target import MoveTarget
from verbena.shards.cluster_map import Move
from verbena.shards.envelope import HEADER_BYTES, Envelope, Kind, parse
from verbena.shards.migration import CatchUp, Facts, Moved, Prepared
from verbena.shards.positions import SourcePosition


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:
    async with two(tmp_path, "quic" if HAS_QUIC else "tcp") as made:
        yield made


EMPTY = (Kind.TAIL, b"")


class Heard:
    """Records the envelopes of a base copy that arrive at the target, by any means."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notices: list[bytes] = []
        self.segments: dict[int, bytes] = {}
        opened, heard = MoveTarget.open, self

        def listen(notice: bytes, piece: bytes) -> None:
            heard.notices.append(notice)
            heard.segments[parse(piece).segment] = piece

        async def opening(receiver: MoveTarget, **wishes: int) -> None:
            receiver.observer = listen
            await opened(receiver, **wishes)

        monkeypatch.setattr(MoveTarget, "open", opening)


async def base_copy(
    source: Member, target: Member, wire: str | None, breaks: bool = False
) -> tuple[MoveSource, list[bytes], list[str]]:
    """Phase 1 of the move over RDMA (None) or over that wire. Returns what was sent, sorted, and the wires
    used."""
    cluster = source.cluster
    context = cluster.moves.context
    context = replace(context, settings=replace(context.settings, rdma=wire is None))
    if wire is not None:
        cluster.sessions._fallback = wire
        await cluster.sessions.drop(cluster.map.members[target.cluster.id])
    sent: list[bytes] = []
    wires: list[str] = []

    def observe(by: str, data: bytes) -> None:
        if parse(data).kind in (Kind.OFFER, Kind.SEGMENT, Kind.NOTICE):
            sent.append(bytes(data))
            wires.append(by)
            if breaks and len(sent) == 20:
                for session in source.node.sessions + target.node.sessions:
                    if session.wire == "shm":
                        session.break_link(rest_s=30)

    cluster.sessions.observer = observe
    facts = Facts(MIGRATION, SLOTS, cluster.id, target.cluster.id)
    mover = MoveSource(context, Prepared(facts), lambda state, sync: None)
    await mover.offer()
    copy = await asyncio.to_thread(source.server.base_copy, list(SLOTS))
    mover.progress.state = Prepared(facts).begin(SourcePosition(0))
    await mover.copy_sender(copy).run()
    copy.close()
    assert len(target.server.databases[0]) == 200
    await mover.abort()
    cluster.sessions.observer = None
    assert len(target.server.databases[0]) == 0
    return mover, sorted(sent, key=lambda data: (parse(data).sequence, parse(data).kind)), wires


async def test_the_envelopes_are_the_same_on_every_wire(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One migration over shared memory, TCP and QUIC: sent and received envelopes are compared as bytes."""
    source, target = pair
    move = Move(MIGRATION, SLOTS, source.cluster.id, target.cluster.id)
    source.cluster.moves.update = lambda: None  # type: ignore[method-assign]
    await source.cluster.current.change(lambda map: map.assign(SLOTS, source.cluster.id).begin_move(move))
    streams, arrived = {}, {}
    for wire in (None, "quic") if HAS_QUIC else (None, "iwarp"):
        heard = Heard(monkeypatch)
        mover, sent, wires = await base_copy(source, target, wire)
        streams[wire] = sent
        arrived[wire] = heard.segments
        assert sorted(heard.notices) == sorted(data for data in sent if parse(data).kind is Kind.NOTICE)
        by = set(wires[1:])
        assert by == {wire or "shm"}
        counted = mover.progress.path.rdma if wire is None else mover.progress.path.fallback
        payloads = sum(len(parse(data).payload) for data in heard.segments.values())
        assert (counted.bytes_transferred, counted.sends_completed) == (payloads, len(heard.segments))
        assert mover.progress.path.state is (
            CopyPathState.CONNECTED if wire is None else CopyPathState.UNAVAILABLE
        )
        assert max(map(len, heard.segments.values())) <= SEGMENT
        assert len(heard.segments) > 3
        monkeypatch.undo()
    assert len(set(map(tuple, streams.values()))) == 1
    first, second = arrived.values()
    assert first == second
    assert sorted(first.values()) == sorted(
        data for data in next(iter(streams.values())) if parse(data).kind is Kind.SEGMENT
    )


async def test_every_kind_of_message_is_the_same_on_every_wire(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages that are sent, delivered to Python at the other end, and answered: of every kind, over
    shared memory and over the fallback, compared as bytes."""
    source, target = pair
    there = source.cluster.map.members[target.cluster.id]
    peers = source.cluster.sessions
    messages = [
        bytes(peers.envelope(kind, there, b"{}" if kind is Kind.GOSSIP else bytes(range(256)) * 20))
        for kind in Kind
    ]
    arrived: dict[str, list[bytes]] = {}
    answers: dict[str, list[bytes]] = {}
    for fast in (True, False):
        session = await peers.session(there, fast=fast)
        wire = session.wire or ""
        heard = arrived.setdefault(wire, [])

        def listen(data: Any, heard: list[bytes] = heard) -> Any:
            if bytes(data) in messages:
                heard.append(bytes(data))
            return parse(data)

        monkeypatch.setattr(cluster_node, "parse", listen)
        replies = [await session.call(METHOD, message) for message in messages]
        assert [reply[5] for reply in replies] == [message[5] for message in messages]  # the kind of message
        # Gossip contains times.
        answers[wire] = [bytes(reply) for reply in replies if parse(reply).kind is not Kind.GOSSIP]
        monkeypatch.undo()
    assert sorted(arrived) == sorted(["shm", "quic" if HAS_QUIC else "iwarp"])
    assert all(stream == messages for stream in arrived.values())
    first, second = answers.values()
    assert first == second
    assert len(first) == len(Kind) - 1


@pytest.mark.skipif(not HAS_QUIC, reason="there is no QUIC here")
async def test_a_whole_move_is_the_same_by_quic_and_by_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base copy over shared memory, then the log, the digest and the rest over the fallback, under
    writes: what is sent is what arrives, and both moves are equal except for the number of empty log
    messages."""
    clock = SimpleNamespace(time=lambda: 1.7e9, monotonic=time.monotonic)
    monkeypatch.setattr(cut_over, "time", clock)
    envelope = MemberSessions.envelope
    monkeypatch.setattr(
        MemberSessions, "envelope", lambda *a, **fields: envelope(*a, **{"boot_epoch": 7, **fields})
    )
    streams = {}
    heard = Heard(monkeypatch)
    for fallback in ("quic", "tcp"):
        sent: list[bytes] = []
        wires: dict[Kind, set[str]] = {}
        arrived: list[bytes] = []

        def listen(data: Any, arrived: list[bytes] = arrived) -> Any:
            arrived.append(bytes(data))
            return parse(data)

        monkeypatch.setattr(cluster_node, "parse", listen)
        heard.notices.clear()
        (tmp_path / fallback).mkdir()
        async with two(tmp_path / fallback, fallback) as (source, target):

            def observe(
                by: str,
                data: bytes,
                sent: list[bytes] = sent,
                wires: dict[Kind, set[str]] = wires,
                source: Member = source,
            ) -> None:
                kind = parse(data).kind
                if kind is Kind.GOSSIP:
                    return
                if kind is Kind.TAIL and Kind.TAIL not in wires:
                    source.write((b"key:%d" % number, b"later %d" % number) for number in range(300))
                sent.append(bytes(data))
                wires.setdefault(kind, set()).add(by)

            end, _ = await whole_move(source, target, observe)
            assert isinstance(end, Moved)
            held = await asyncio.to_thread(target.read, [b"key:%d" % number for number in range(300)])
            assert held == [b"later %d" % number for number in range(300)]
        by = "iwarp" if fallback == "tcp" else fallback
        assert {kind: wires[kind] for kind in (Kind.SEGMENT, Kind.TAIL, Kind.DIGEST)} == {
            Kind.SEGMENT: {"shm"},
            Kind.TAIL: {by},
            Kind.DIGEST: {by},
        }
        # Segments are written to memory: the contents there are compared above.
        announced = [data for data in sent if parse(data).kind is not Kind.SEGMENT]
        mine = [data for data in arrived if parse(data).migration.hex() == MIGRATION]
        assert sorted([*mine, *heard.notices]) == sorted(announced)
        # Segments are not compared here either, because each engine has its own order of keys. The number of
        # empty log messages depends on the clock.
        streams[fallback] = {
            bytes(replace(message, sequence=0)): message.kind
            for message in map(parse, sent)
            if message.kind not in (Kind.SEGMENT, Kind.NOTICE) and (message.kind, message.payload) != EMPTY
        }
    assert list(streams["quic"]) == list(streams["tcp"])
    kinds = list(streams["quic"].values())
    assert kinds.count(Kind.DIGEST) == 1
    assert max(len(parse(data).payload) for data, kind in streams["tcp"].items() if kind is Kind.TAIL) > 3000


async def test_a_target_a_million_records_behind_is_not_ready(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are written when following the log begins: commands are served until all but a few records
    have been applied, and only then wait."""
    source, target = pair
    written = 1_000_000
    fence, seen = source.cluster.guard.fence, list[tuple[Kind, int]]()
    fenced_at: list[int] = []

    def observe(by: str, data: bytes) -> None:
        message = parse(data)
        if message.kind is Kind.TAIL and not any(kind is Kind.TAIL for kind, _ in seen):
            source.write((b"key:%d" % (number % 1000), b"%d" % number) for number in range(written))
        seen.append((message.kind, message.offset))

    def watched(slots: Any) -> int:
        fenced_at.append(len(seen))
        return fence(slots)

    monkeypatch.setattr(source.cluster.guard, "fence", watched)
    source.server.engine.set_backlog_limits(keep_bytes=1 << 20, max_bytes=1 << 30)
    end, states = await whole_move(source, target, observe)
    assert isinstance(end, Moved), end
    before, ready = [state for state in states if isinstance(state, CatchUp)]
    assert before.behind < 1000
    assert ready.behind <= 1000
    assert ready.applied - before.applied >= written - 1000
    tails = [offset for kind, offset in seen[: fenced_at[0]] if kind is Kind.TAIL]
    assert len(tails) > 20  # one megabyte each
    assert tails[-1] - 1 >= ready.head.lsn - 1000
    assert Kind.DIGEST not in [kind for kind, _ in seen[: fenced_at[0]]]
    held = await asyncio.to_thread(target.read, [b"key:%d" % number for number in range(1000)])
    assert held == [b"%d" % (written - 1000 + number) for number in range(1000)]


async def test_a_copy_whose_rdma_breaks_goes_on_by_the_fallback(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link breaks half-way: acknowledged pieces are not sent again, the rest uses the other wire, and all
    arrives."""
    source, target = pair
    move = Move(MIGRATION, SLOTS, source.cluster.id, target.cluster.id)
    source.cluster.moves.update = lambda: None  # type: ignore[method-assign]
    await source.cluster.current.change(lambda map: map.assign(SLOTS, source.cluster.id).begin_move(move))
    heard = Heard(monkeypatch)
    mover, _, wires = await base_copy(source, target, None, breaks=True)
    assert mover.progress.path.state is CopyPathState.FAILED
    assert mover.progress.path.rdma.sends_completed > 0
    assert mover.progress.path.fallback.sends_completed > 0
    assert mover.progress.path.rdma.sends_completed + mover.progress.path.fallback.sends_completed == len(
        heard.segments
    )
    assert wires[1] == "shm"
    assert wires[-1] != "shm"


async def first_piece(
    source: Member, target: Member, *keys: tuple[bytes, bytes]
) -> tuple[MoveSource, transport.RemoteRegion, Envelope, transport.Session]:
    """Begins a move of these keys that does not continue by itself. Returns the source, the window of the
    first piece, the piece and the session."""
    mover = await prepared_move(source, target)
    await asyncio.to_thread(source.write, list(keys))
    await mover.offer()
    copy = await asyncio.to_thread(source.server.base_copy, list(SLOTS))
    body = bytearray(SEGMENT - HEADER_BYTES)
    first = mover.link.message(Kind.SEGMENT, bytes(body[: copy.fill(body)]), segment=0)
    copy.close()
    session, _ = await mover.link.copy_session()
    window, *_ = await mover.link.borrow(session)
    return mover, window, first, session


async def test_a_notice_of_what_has_not_arrived_is_refused(pair: tuple[Member, Member]) -> None:
    """A broken link may lose the piece but not its notice, which the session repeats. The window then has
    older contents, and acknowledging them would lose the piece."""
    source, target = pair
    mover, window, first, session = await first_piece(source, target)

    def notice(segment: int) -> bytes:
        return bytes(
            mover.link.message(
                Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES + len(first.payload)), segment=segment
            )
        )

    peers = source.cluster.sessions
    piece = bytes(first)
    await session.write(window[: len(piece)], piece)
    await peers.send(session, notice(0))
    await peers.send(session, notice(0))  # a duplicate notice
    with pytest.raises(RemoteError, match="holds segment 0, not 3"):
        await peers.send(session, notice(3))
    await mover.abort()


async def test_a_damaged_piece_leaves_nothing_and_the_right_one_is_taken(
    pair: tuple[Member, Member],
) -> None:
    """The long values of the damaged piece do not become keys, and their memory is freed."""
    source, target = pair
    long = [(b"long:%d" % number, b"%d" % number * 10_000) for number in range(4)]
    mover, window, first, session = await first_piece(source, target, *long)
    notice = bytes(
        mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES + len(first.payload)), segment=0)
    )
    engine, peers, piece = target.server.engine, source.cluster.sessions, bytearray(bytes(first))
    assert len(target.server.databases[0]) == 0
    used = engine.counters()["used_bytes"]
    for at in (HEADER_BYTES + 1, len(piece) // 2, len(piece) - 1):
        piece[at] ^= 1
        await session.write(window[: len(piece)], bytes(piece))
        with pytest.raises(RemoteError, match="checksum"):
            await peers.send(session, notice)
        assert engine.counters()["used_bytes"] == used
        assert len(target.server.databases[0]) == 0
        piece[at] ^= 1
    await session.write(window[: len(piece)], bytes(piece))
    await peers.send(session, notice)
    assert len(target.server.databases[0]) > 0
    assert engine.counters()["used_bytes"] > used
    await mover.abort()


async def test_hostile_messages_are_refused(pair: tuple[Member, Member]) -> None:
    """A message about a move that the map does not have, an invalid offer, a message for another node."""
    source, target = pair
    there = source.cluster.map.members[target.cluster.id]
    peers = source.cluster.sessions
    for message, says in (
        (peers.envelope(Kind.OFFER, there, b'{"slots": "0-5", "attempt": 1}'), "OFFER is for the source"),
        (peers.envelope(Kind.NOTICE, there, bytes(8)), "no such move"),
        (peers.envelope(Kind.TAIL, there, b"x"), "TAIL is for the source"),
        (peers.envelope(Kind.GOSSIP, there, target=bytes(20)), "this is"),
    ):
        with pytest.raises(RemoteError, match=says):
            await peers.request(there, message)
    move = Move(MIGRATION, SLOTS, source.cluster.id, target.cluster.id)
    source.cluster.moves.update = lambda: None  # type: ignore[method-assign]
    await source.cluster.current.change(lambda map: map.assign(SLOTS, source.cluster.id).begin_move(move))
    number = bytes.fromhex(MIGRATION)
    for message, says in (
        (peers.envelope(Kind.OFFER, there, b"{}", migration=number), "slots"),
        (peers.envelope(Kind.OFFER, there, b"not json", migration=number), "Expecting"),
        (peers.envelope(Kind.OFFER, there, b'{"slots": "0-5", "attempt": 1}', migration=number), "no such"),
        (peers.envelope(Kind.TAIL, there, b"x", migration=number), "no such move"),
        (peers.envelope(Kind.WINDOWS, there, migration=number), "no such move"),
    ):
        with pytest.raises(RemoteError, match=says):
            await peers.request(there, message)


async def test_hostile_notices_are_refused(pair: tuple[Member, Member]) -> None:
    """Native code parses them: truncated, extended, with any byte changed, or of a window that is not lent.
    The next valid notice is still accepted."""
    source, target = pair
    there = source.cluster.map.members[target.cluster.id]
    peers = source.cluster.sessions
    session = await peers.session(there, fast=True)
    good = bytes(peers.envelope(Kind.NOTICE, there, PIECE_NOTICE.pack(0, HEADER_BYTES)))
    bad = [good[:length] for length in range(0, len(good), 7)] + [good + b"x"]
    bad += [good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :] for at in range(len(good))]
    for notice in bad:
        with pytest.raises(RemoteError):
            await session.call("shards.notice", notice)
    for payload in (b"", bytes(7), bytes(9)):
        with pytest.raises(RemoteError, match="8 bytes"):
            await peers.request(there, peers.envelope(Kind.NOTICE, there, payload))
    with pytest.raises(RemoteError, match="no such move"):
        await peers.send(session, good)
    mover = await offered_move(source, target)
    with pytest.raises(RemoteError, match="not lent to this session"):
        await peers.send(session, bytes(mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES))))
    await mover.link.borrow(session)
    for window, length, says in (
        (0, SEGMENT + 1, "no such window"),
        (99, HEADER_BYTES, "no such window"),
        (0, HEADER_BYTES, "magic bytes"),
        (0, 5, "shorter than a header"),
    ):
        with pytest.raises(RemoteError, match=says):
            await peers.send(
                session, bytes(mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(window, length)))
            )
    await mover.abort()
