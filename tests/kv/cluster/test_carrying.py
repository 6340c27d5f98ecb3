"""The source's end of a base copy, against a small target in Python: what is sent, what is sent again after a
link breaks, and the effect of a refusal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.kv.members import PIECE_NOTICE

from verbena import _native, errors, transport
from verbena.kv.cluster.member_sessions import answer
from verbena.shards.envelope import HEADER_BYTES, Envelope, Flag, Kind, parse
from verbena.shards.slots import SLOTS
from verbena.transport import Listener, Region, Request, Session

PIECE = 64 << 10
HEADER = Envelope(Kind.SEGMENT, bytes(20), bytes(20), 0, SLOTS - 1, b"m" * 16, sequence=7)
VALUES = {b"key:%d" % number: b"%d," % number * 4000 for number in range(60)}


@dataclass
class Target:
    """Records the announced pieces. It answers once `go_on` is set; `refuse` makes it refuse."""

    regions: list[Region]
    listener: Listener
    pieces: dict[int, bytes] = field(default_factory=dict)
    notices: list[int] = field(default_factory=list)
    # contents of the window at the first notice of a piece
    seen: dict[int, bytes] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)
    full: asyncio.Event = field(default_factory=asyncio.Event)  # every window has been announced
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    refuse: str = ""

    async def on_notice(self, request: Request) -> bytes:
        notice = parse(request.payload)
        window, length = PIECE_NOTICE.unpack(notice.payload)
        piece = bytes(memoryview(self.regions[window])[:length])
        self.notices.append(notice.segment)
        self.seen.setdefault(notice.segment, piece)
        if len(self.seen) >= len(self.regions):
            self.full.set()
        self.held.set()
        await self.go_on.wait()
        if self.refuse:
            return answer(notice, self.refuse.encode(), refused=True)
        assert parse(piece).segment == notice.segment
        self.pieces[notice.segment] = piece
        return answer(notice)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made: list[Target] = []

    async def on_notice(request: Request) -> bytes:
        return await made[0].on_notice(request)

    handlers = {"shards.notice": on_notice}
    async with transport.listen("127.0.0.1:0", handlers=handlers) as listener:
        made.append(Target([listener.node.allocate(PIECE) for _ in range(3)], listener))
        yield made[0]


@pytest.fixture(params=["shm", "iwarp"])
async def session(request: pytest.FixtureRequest, target: Target) -> AsyncIterator[Session]:
    async with transport.connect(target.listener.address, wire=request.param) as connected:
        yield connected


@pytest.fixture
def engine() -> _native.kv.Engine:
    engine = _native.kv.Engine()
    for key, value in VALUES.items():
        engine.database(0).put(key, value)
    return engine


class Carrier:
    """A sender with the windows of the target."""

    def __init__(self, copy: _native.kv.BaseCopy, target: Target) -> None:
        self.windows = [region.remote.key for region in target.regions]
        self.sender = _native.kv.CopySender(copy, HEADER.header(), len(self.windows), PIECE)

    def run(self, session: _native.transport.Session, link: int, *, answer_timeout_s: float) -> bool:
        return self.sender.run(session, link, self.windows, answer_timeout_s=answer_timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sender, name)


def carrier(engine: _native.kv.Engine, target: Target) -> Carrier:
    copy = engine.base_copy(None)
    return Carrier(copy, target)


def contents(target: Target) -> dict[bytes, bytes]:
    """The keys and values of the pieces, applied by another engine."""
    engine = _native.kv.Engine()
    applier = _native.kv.LogApplier(engine, lambda *words: False)
    for number in sorted(target.pieces):
        applier.apply(parse(target.pieces[number]).payload)
    assert applier.complete
    found = {key: engine.database(0).string(key) for key in VALUES}
    applier.close()
    return found  # type: ignore[return-value]


async def run(carrying: Carrier, session: Session, link: int = 0) -> bool:
    return await asyncio.to_thread(carrying.run, session._native, link, answer_timeout_s=30)


async def test_all_of_it_arrives_in_order(
    engine: _native.kv.Engine, target: Target, session: Session
) -> None:
    """Pieces are numbered, at their offset, the last one marked, and never more at a time than there are
    windows."""
    target.go_on.set()
    carrying = carrier(engine, target)
    assert await run(carrying, session)
    assert contents(target) == VALUES
    assert sorted(target.notices) == list(range(len(target.pieces)))
    envelopes = [parse(target.pieces[number]) for number in sorted(target.pieces)]
    offset = 0
    for number, piece in enumerate(envelopes):
        flags = Flag.LAST if number == len(envelopes) - 1 else Flag.NONE
        assert replace(piece, payload=b"") == replace(
            HEADER, segment=number, offset=offset, sequence=7 + number, flags=flags
        )
        offset += len(piece.payload)
    assert (carrying.acknowledged, carrying.pieces) == (offset, len(envelopes))
    # A piece is full, or at most an eighth short, because a long value would have been cut.
    room = PIECE - HEADER_BYTES
    assert all(room - room // 8 <= len(piece.payload) <= room for piece in envelopes[:-1])


async def test_a_link_that_breaks_answers_for_nothing(
    engine: _native.kv.Engine, target: Target, session: Session
) -> None:
    """The session repeats the notices on its next link, but no layer repeats the pieces. So the sender
    reports the break, sends all unacknowledged pieces again, and does not start on a link other than the
    given one."""
    carrying = carrier(engine, target)
    first = session.links
    running = asyncio.ensure_future(run(carrying, session, first))
    await asyncio.to_thread(target.held.wait)
    session.break_link()
    with pytest.raises(errors.BrokenLinkError, match="before it was answered"):
        await running
    with pytest.raises(errors.BrokenLinkError, match="before it was answered"):
        await run(carrying, session, first)
    assert (carrying.acknowledged, carrying.pieces) == (0, 0)
    target.go_on.set()
    assert await run(carrying, session)
    assert session.links > first
    assert contents(target) == VALUES
    assert carrying.pieces == len(target.pieces)


async def test_what_goes_again_is_what_went_before(
    engine: _native.kv.Engine, target: Target, session: Session
) -> None:
    """Long values may be sent from the store's own memory. A piece that is not acknowledged keeps its bytes,
    even if the values change meanwhile."""
    carrying = carrier(engine, target)
    running = asyncio.ensure_future(run(carrying, session, session.links))
    await target.full.wait()
    database = engine.database(0)
    for number, key in enumerate(VALUES):
        if number % 2:
            database.put(key, b"other" * len(VALUES[key]))
        else:
            database.delete(key)
    session.break_link()
    with pytest.raises(errors.BrokenLinkError, match="before it was answered"):
        await running
    target.go_on.set()
    assert await run(carrying, session)
    for number in range(len(target.regions)):
        assert target.pieces[number] == target.seen[number]


async def test_a_refusal_is_passed_on(engine: _native.kv.Engine, target: Target, session: Session) -> None:
    """The refusal is available unchanged, and nothing is acknowledged."""
    target.refuse = "no room for it"
    target.go_on.set()
    carrying = carrier(engine, target)
    with pytest.raises(errors.RemoteError, match="refused"):
        await run(carrying, session)
    refusal = parse(carrying.refusal)
    assert refusal.flags == Flag.ANSWER | Flag.REFUSED
    assert refusal.payload == b"no room for it"
    assert carrying.acknowledged == 0


async def test_a_base_copy_stops_when_the_move_is_aborted(
    engine: _native.kv.Engine, target: Target, session: Session
) -> None:
    """It also stops if nothing is acknowledged within the time limit, or when the copy is closed."""
    carrying = carrier(engine, target)
    with pytest.raises(errors.VerbenaError) as raised:
        await asyncio.to_thread(carrying.run, session._native, 0, answer_timeout_s=0.05)
    assert raised.value.code == "call_timeout"
    running = asyncio.ensure_future(run(carrying, session))
    await asyncio.to_thread(target.held.wait)
    carrying.stop()
    assert not await running


@pytest.mark.parametrize(
    ("header", "windows", "piece"),
    [(bytes(111), 1, PIECE), (bytes(112), 0, PIECE), (bytes(112), 1, 112)],
)
def test_invalid_arguments_are_refused(
    engine: _native.kv.Engine, header: bytes, windows: int, piece: int
) -> None:
    with pytest.raises(ValueError, match=r"header|room"):
        _native.kv.CopySender(engine.base_copy(None), header, windows, piece)


async def test_a_run_needs_as_many_windows_as_the_sender_has(
    engine: _native.kv.Engine, target: Target, session: Session
) -> None:
    carrying = carrier(engine, target)
    with pytest.raises(ValueError, match="number of windows"):
        carrying.sender.run(session._native, 0, carrying.windows[1:], answer_timeout_s=30)
