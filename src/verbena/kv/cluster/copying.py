"""Phase 1 of a move, at its source: by RDMA while that works, by the fallback otherwise. Native code fills,
sends and awaits the pieces; what was not acknowledged when a wire broke goes first by the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import VerbenaError
from verbena.shards.bulk import RDMA_WIRES
from verbena.shards.envelope import Kind
from verbena.transport import RemoteRegion, Session

if TYPE_CHECKING:
    from verbena.kv.cluster.mover import Mover

MOST_AT_ONCE = 6  # pieces: the source fills one while others are on their way or applied
LONGEST_PIECE = 1 << 20  # so that all of them fit into a cache
_PATIENCE_S = 30.0
_LOOK_S = 0.05


class Copying:
    def __init__(self, mover: Mover, copy: _native.kv.BaseCopy, windows: list[RemoteRegion]) -> None:
        self._mover = mover
        self._copy = copy
        sequence = mover.next_sequence()
        self._carrier = _native.kv.CopySender(
            copy,
            mover.message(Kind.SEGMENT, sequence=sequence).header(),
            [window.key for window in windows],
            min(window.length for window in windows),
            observer=mover.node.peers.tap,
        )
        self._told = 0, 0  # bytes and pieces that the mover has heard of

    async def run(self) -> None:
        """All of it is acknowledged when this returns. VerbenaError: the target is out of reach."""
        mover, is_whole = self._mover, False
        while not is_whole and not mover.aborted:
            session, fast = await mover.session()
            try:
                # By RDMA on this link, or not at all: the session may wait for its next one, this need not.
                is_whole = await self._run(session, session.links if fast else 0, fast)
            except VerbenaError as error:
                if self._carrier.refusal:
                    mover.node.peers.read_answer(session, Kind.LANDED, self._carrier.refusal)
                if not (fast or error.code == "WR_FLUSH_ERR"):
                    raise
                if fast:
                    mover.bulk.failed()
        mover.skip_sequences(self._carrier.pieces - 1)

    async def _run(self, session: Session, link: int, fast: bool) -> bool:
        wire = session.wire or ""
        by_rdma = fast and wire in RDMA_WIRES
        running = asyncio.ensure_future(
            asyncio.to_thread(self._carrier.run, session._native, link, patience_s=_PATIENCE_S)
        )
        try:
            while not running.done():
                await asyncio.wait([running], timeout=_LOOK_S)
                self._tell(by_rdma, wire)
                if self._mover.aborted:
                    self._carrier.stop()
            return running.result()
        finally:
            if not running.done():  # this was cancelled
                self._carrier.stop()
                await asyncio.wait([running])
            self._tell(by_rdma, wire)

    def _tell(self, by_rdma: bool, wire: str) -> None:
        """The mover, of what has been acknowledged since."""
        carrier, (nbytes, pieces) = self._carrier, self._told
        self._told = carrier.acknowledged, carrier.pieces
        self._mover.acknowledged(self._told[0] - nbytes, self._told[1] - pieces, by_rdma, wire)
        self._mover.fraction = self._copy.fraction
