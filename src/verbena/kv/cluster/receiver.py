"""The target's side of a move: windows for segments, the applier, the digest; nothing is served until the map
says that the slots are this node's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.errors import setup_error
from verbena.kv.replication.applying import applier
from verbena.shards.envelope import HEADER_BYTES, Envelope, Kind
from verbena.shards.migration import Facts
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.kv.server.server import Server
    from verbena.transport import Node, Region

LANDED = struct.Struct("<II")  # window, bytes
_MOST_WINDOWS = 64
_RESERVE_S = 5.0  # what is not there by then comes page by page
_LONGEST_WINDOW = 64 << 20
_MOST_EFFORT_S = 10.0


class Receiver:
    """One attempt of one move. Everything that arrives is an envelope, checked before it is used. Segments
    are native code's: `landings` hears of them."""

    def __init__(self, server: Server, node: Node, landings: _native.kv.CopyReceivers, move: Facts) -> None:
        self.server = server
        self.slots = move.slots
        self.attempt = move.attempt
        self._migration = bytes.fromhex(move.migration)
        self._node = node
        self._landings = landings
        self._landing: _native.kv.CopyReceiver | None = None
        self._regions: list[Region] = []
        self._applier: _native.kv.LogApplier | None = None
        self._digest: _native.kv.SlotDigest | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="receiver")  # the log, in order
        self._worker: asyncio.Task[None] | None = None
        self.tap: Callable[[bytes, bytes], None] | None = None  # every segment that lands, with its notice

    async def open(self, *, windows: int, window_bytes: int, nbytes: int) -> list[str]:
        """Forgets what an earlier attempt left, makes room for about `nbytes` of values, and lends memory:
        the regions, in hexadecimal."""
        if not 0 < windows <= _MOST_WINDOWS or not HEADER_BYTES < window_bytes <= _LONGEST_WINDOW:
            raise ValueError(f"{windows} windows of {window_bytes} bytes are not lent")
        await sweep(self.server, self.slots)
        await asyncio.to_thread(self.server.engine.reserve, max(0, nbytes), seconds=_RESERVE_S)
        self._regions = await asyncio.to_thread(
            lambda: [
                self._node.allocate(window_bytes, access=Access.REMOTE_WRITE | Access.LOCAL_WRITE)
                for _ in range(windows)
            ]
        )
        self._applier = applier(self.server, slots=list(self.slots))
        memory = [region.memory for region in self._regions]
        self._landing = self._landings.open(
            self.server.engine, self._migration, memory, self._applier, observer=self.tap
        )
        return [region.remote.to_bytes().hex() for region in self._regions]

    async def close(self) -> None:
        """Nothing is applied any more when this returns."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        if self._landing is not None:
            await asyncio.to_thread(self._landing.close)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        if self._digest is not None:
            self._digest.close()
        if self._applier is not None:
            self._applier.close()
        regions, self._regions = self._regions, []
        for region in regions:
            await asyncio.to_thread(region.revoke)

    async def serve(self, message: Envelope) -> bytes:
        if message.kind is Kind.TAIL:
            return await self._tail(message)
        if message.kind is Kind.DIGEST:
            return await self._sum(message)
        raise ValueError(f"{message.kind.name} is not for a target")

    async def _tail(self, message: Envelope) -> bytes:
        assert self._applier is not None
        if not self._applier.complete:
            raise ValueError("the base copy is not whole")
        if self._digest is None:
            self._digest = _native.kv.SlotDigest(self.server.engine, list(self.slots))
            self._worker = self._loop.create_task(digest_along(self._digest))
        await self._loop.run_in_executor(self._thread, self._apply, message.payload)
        return json.dumps({"lsn": self._applier.lsn, "pending": self._digest.pending}).encode()

    async def _sum(self, message: Envelope) -> bytes:
        """What is here is kept as the log promises before anybody hears of it."""
        assert self._applier is not None
        if self._digest is None:
            raise ValueError("the base copy is not whole")
        asked = json.loads(message.payload)
        now_ms, left_out = int(asked["now_ms"]), [int(name) for name in asked.get("left_out", ())]
        effort_s = min(_MOST_EFFORT_S, float(asked.get("effort_s", 0.0)))
        sum_, keys, mine = await self._loop.run_in_executor(
            self._thread, self._finish, now_ms, left_out, effort_s
        )
        answer = {"digest": f"{sum_:016x}/{keys}", "left_out": mine, "lsn": self._applier.lsn}
        return json.dumps(answer).encode()

    # On the thread

    def _apply(self, payload: bytes) -> None:
        """The envelope around it has been checked."""
        assert self._applier is not None
        assert self._landing is not None
        if self._landing.failure:
            raise ValueError(f"an earlier piece could not be applied: {self._landing.failure}")
        self._applier.apply(payload, checked=True)
        if self._applier.failed:
            raise ValueError(self._applier.first_failure)

    def _finish(self, now_ms: int, left_out: list[int], effort_s: float) -> tuple[int, int, list[int]]:
        assert self._digest is not None
        if not self.server.engine.commit():
            raise ValueError(f"the target cannot keep it: {self.server.engine.refusal}")
        return finish(self._digest, now_ms, left_out, effort_s)


def finish(
    digest: _native.kv.SlotDigest, now_ms: int, left_out: list[int], effort_s: float
) -> tuple[int, int, list[int]]:
    """The sum, when nothing changes any more. `effort_s`: for as long at most large values are summed, too,
    between other slots' commands."""
    ends = time.monotonic() + effort_s
    while effort_s and not digest.work(0.001, still=True) and time.monotonic() < ends:
        pass
    return digest.finish(now_ms, left_out)


async def sweep(server: Server, slots: Any) -> int:
    """Takes the keys of slots out of the store, a millisecond at a time."""
    work = _native.kv.SlotSweep(server.engine, list(slots))
    done = False
    while not done:
        done = await asyncio.to_thread(work.work, 0.001)
        await asyncio.sleep(0 if done else 0.001)
    return work.removed


async def digest_along(digest: _native.kv.SlotDigest) -> None:
    """Keeps a digest nearly up to date, so that little is left when writes stop."""
    with contextlib.suppress(ValueError):  # it was closed
        while True:
            done = await asyncio.to_thread(digest.work, 0.001)
            await asyncio.sleep(0.01 if done else 0.001)


def no_such_move() -> Exception:
    return setup_error(
        "move_failed", operation="receive", detail="this node knows no such move, or a newer attempt"
    )
