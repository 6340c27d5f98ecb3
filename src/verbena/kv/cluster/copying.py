"""Phase 1 of a move, at its source: a few threads that each fill a piece from the store, put it into their
window of the target's memory and announce it, over and over. While one waits, others fill and send: what
runs for every byte is native, and nobody holds the GIL for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import VerbenaError
from verbena.kv.cluster.receiver import LANDED
from verbena.shards.bulk import RDMA_WIRES
from verbena.shards.envelope import HEADER_BYTES, Flag, Kind
from verbena.transport import RemoteRegion, Session

if TYPE_CHECKING:
    from verbena.kv.cluster.mover import Mover

MOST_AT_ONCE = 3  # one is filled, one is on its way, one is applied; more would only leave the caches
_PATIENCE_S = 30.0


class Copying:
    def __init__(self, mover: Mover, copy: _native.kv.BaseCopy, windows: list[RemoteRegion]) -> None:
        self._mover = mover
        self._copy = copy
        self._windows = windows
        self._loop = asyncio.get_running_loop()
        self._turn = threading.Condition()  # who fills: each has its turn, so a segment's window is known
        self._offset = 0
        self._segment = 0
        self._last = False
        self._stopped = False

    async def run(self) -> None:
        """All of it is acknowledged when this returns. VerbenaError: the target is out of reach."""
        pool = ThreadPoolExecutor(len(self._windows), thread_name_prefix="base-copy")
        work = [
            self._loop.run_in_executor(pool, self._work, index, window)
            for index, window in enumerate(self._windows)
        ]
        try:
            await asyncio.gather(*work)
        except Exception:
            self._stop()
            await asyncio.gather(*work, return_exceptions=True)
            raise
        finally:
            self._stop()
            pool.shutdown(wait=False)

    def _stop(self) -> None:
        with self._turn:
            self._stopped = True
            self._turn.notify_all()

    # On threads of their own

    @property
    def _is_over(self) -> bool:
        return self._last or self._stopped or bool(self._mover.aborted)

    def _work(self, index: int, window: RemoteRegion) -> None:
        try:
            self._copy_pieces(index, window)
        except BaseException:
            self._stop()  # nobody waits for a turn that does not come
            raise

    def _copy_pieces(self, index: int, window: RemoteRegion) -> None:
        mover = self._mover
        piece = bytearray(min(window.length, mover.node.settings.max_send_size))
        with memoryview(piece) as view:
            while True:
                with self._turn:
                    self._turn.wait_for(lambda: self._is_over or self._segment % len(self._windows) == index)
                    if self._is_over:
                        return
                    used = self._copy.fill(view[HEADER_BYTES:])
                    self._last = self._copy.complete
                    mover.fraction = self._copy.fraction
                    number, offset, last = self._segment, self._offset, self._last
                    sequence = mover.next_sequence()
                    self._segment += 1
                    self._offset += used
                    self._turn.notify_all()
                with view[HEADER_BYTES : HEADER_BYTES + used] as payload:
                    segment = mover.message(
                        Kind.SEGMENT,
                        payload,  # type: ignore[arg-type]
                        segment=number,
                        sequence=sequence,
                        offset=offset,
                        flags=Flag.LAST if last else Flag.NONE,
                    )
                    view[:HEADER_BYTES] = segment.header()
                notice = mover.message(
                    Kind.LANDED,
                    LANDED.pack(index, HEADER_BYTES + used),
                    segment=number,
                    sequence=sequence,
                )
                with view[: HEADER_BYTES + used] as whole:
                    self._send(whole, bytes(notice), window)

    def _send(self, piece: memoryview, notice: bytes, window: RemoteRegion) -> None:
        """Into the target's memory, and a notice; if RDMA breaks, the same again on the fallback."""
        mover, peers = self._mover, self._mover.node.peers
        while True:
            session, fast = self._session()
            before, links = session.wire, session.links
            try:
                # By RDMA on this link, or not at all: the session may wait for its next one, others need not.
                peers.deliver(
                    session, piece, window, notice, timeout_s=_PATIENCE_S, link=links if fast else None
                )
                by_rdma = before in RDMA_WIRES and session.wire == before
            except VerbenaError as error:
                if self._stopped or not (fast or error.code == "WR_FLUSH_ERR"):
                    raise
                if fast:
                    mover.bulk.failed()
                continue
            break
        self._loop.call_soon_threadsafe(
            mover.acknowledged, piece.nbytes - HEADER_BYTES, by_rdma and fast, session.wire or ""
        )

    def _session(self) -> tuple[Session, bool]:
        """The present one, if nothing has happened to it; dialled on the event loop."""
        bulk = self._mover.bulk
        if bulk.session is not None and bulk.is_connected:
            return bulk.session, True
        found: Future[tuple[Session, bool]] = asyncio.run_coroutine_threadsafe(
            self._mover.session(), self._loop
        )
        return found.result(_PATIENCE_S)
