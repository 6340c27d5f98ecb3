"""Phase 1 of a move at its source: sends the base copy over RDMA while that works, else over the fallback.
Native code fills, sends and awaits the pieces; a piece that was not acknowledged when a link broke is sent
first on the next link. The target lends its windows to one session at a time."""

from __future__ import annotations

import asyncio

from verbena import _native
from verbena.errors import VerbenaError
from verbena.kv.migration.copy_path import RDMA_WIRES
from verbena.kv.migration.progress import Progress
from verbena.kv.migration.target_link import TargetLink
from verbena.shards.envelope import Kind
from verbena.transport import RemoteRegion, Session

MAX_PIECES_IN_FLIGHT = 6  # the source fills one while others are in transit or being applied
MAX_PIECE_BYTES = 1 << 20  # all pieces in flight fit into a cache
_ANSWER_TIMEOUT_S = 30.0
_POLL_S = 0.05


class BaseCopySender:
    def __init__(
        self,
        copy: _native.kv.BaseCopy,
        *,
        windows: int,
        window_bytes: int,
        link: TargetLink,
        progress: Progress,
    ) -> None:
        self._copy = copy
        self._link = link
        self._progress = progress
        self._sender = _native.kv.CopySender(
            copy,
            link.message(Kind.SEGMENT, sequence=link.next_sequence()).header(),
            windows,
            window_bytes,
            observer=link.sessions.observer,
        )
        self._reported = 0, 0  # bytes and pieces that `progress` includes

    async def run(self) -> None:
        """Returns when the target has acknowledged all of it, or the move was aborted. VerbenaError: the
        target cannot be reached."""
        complete = False
        while not complete and not self._progress.aborted:
            session, fast = await self._link.copy_session()
            try:
                # An RDMA run is bound to the session's present link: when that breaks, the fallback takes
                # over without waiting for the session to reconnect.
                link = session.links if fast else 0
                windows = await self._link.borrow(session)
                complete = await self._run(session, link, windows, fast)
            except VerbenaError as error:
                if self._sender.refusal:
                    self._link.sessions.read_answer(session, Kind.NOTICE, self._sender.refusal)
                if not (fast or error.code == "WR_FLUSH_ERR"):
                    raise
                if fast:
                    self._progress.path.failed()
        self._link.skip_sequences(self._sender.pieces - 1)

    async def _run(self, session: Session, link: int, windows: list[RemoteRegion], fast: bool) -> bool:
        wire = session.wire or ""
        by_rdma = fast and wire in RDMA_WIRES
        running = asyncio.ensure_future(
            asyncio.to_thread(
                self._sender.run,
                session._native,
                link,
                [window.key for window in windows],
                answer_timeout_s=_ANSWER_TIMEOUT_S,
            )
        )
        try:
            while not running.done():
                await asyncio.wait([running], timeout=_POLL_S)
                self._report(by_rdma, wire)
                if self._progress.aborted:
                    self._sender.stop()
            return running.result()
        finally:
            if not running.done():  # this task was cancelled
                self._sender.stop()
                await asyncio.wait([running])
            self._report(by_rdma, wire)

    def _report(self, by_rdma: bool, wire: str) -> None:
        """Adds to `progress` what was acknowledged since the last report."""
        sender, (nbytes, pieces) = self._sender, self._reported
        self._reported = sender.acknowledged, sender.pieces
        self._progress.acknowledged(
            self._reported[0] - nbytes, self._reported[1] - pieces, by_rdma=by_rdma, wire=wire
        )
        self._progress.fraction = self._copy.fraction
