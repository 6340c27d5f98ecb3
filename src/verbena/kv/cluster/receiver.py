"""The target's side of a move: windows for segments, the applier, the digest; nothing is served until the map
says that the slots are this node's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.errors import setup_error
from verbena.kv.replication.applying import applier
from verbena.shards.envelope import HEADER_BYTES, Envelope, Kind, parse
from verbena.shards.slots import SlotRange
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.kv.server import Server
    from verbena.transport import Node, Region

LANDED = struct.Struct("<II")  # window, bytes
_PIECE = 256 << 10
_MOST_WINDOWS = 64
_LONGEST_WINDOW = 64 << 20


class Receiver:
    """One attempt of one move. Everything that arrives is an envelope, checked before it is used."""

    def __init__(self, server: Server, node: Node, slots: SlotRange, attempt: int) -> None:
        self.server = server
        self.slots = slots
        self.attempt = attempt
        self.taken = 0  # bytes of segments
        self._node = node
        self._regions: list[Region] = []
        self._applier: _native.kv.Applier | None = None
        self._digest: _native.kv.SlotDigest | None = None
        self._next = 0
        self._waiting: dict[int, bytes] = {}
        self._applied = asyncio.Condition()
        self._applying = asyncio.Lock()
        self._failure: Exception | None = None
        self._worker: asyncio.Task[None] | None = None

    async def open(self, *, windows: int, window_bytes: int) -> list[str]:
        """Forgets what an earlier attempt left, and lends memory: the regions, in hexadecimal."""
        if not 0 < windows <= _MOST_WINDOWS or not HEADER_BYTES < window_bytes <= _LONGEST_WINDOW:
            raise ValueError(f"{windows} windows of {window_bytes} bytes are not lent")
        await sweep(self.server, self.slots)
        self._regions = await asyncio.to_thread(
            lambda: [
                self._node.allocate(window_bytes, access=Access.REMOTE_WRITE | Access.LOCAL_WRITE)
                for _ in range(windows)
            ]
        )
        self._applier = applier(self.server, slots=list(self.slots))
        self._digest = _native.kv.SlotDigest(self.server.engine, list(self.slots))
        self._worker = asyncio.get_running_loop().create_task(digest_along(self._digest))
        return [region.remote.to_bytes().hex() for region in self._regions]

    async def close(self, *, forget: bool) -> None:
        """`forget`: nothing came of it, and what was applied goes."""
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
        if forget:
            await sweep(self.server, self.slots)

    async def serve(self, message: Envelope) -> bytes:
        if message.kind is Kind.LANDED:
            return await self._landed(message)
        if message.kind is Kind.TAIL:
            return await self._tail(message)
        if message.kind is Kind.DIGEST:
            return await self._sum(message)
        raise ValueError(f"{message.kind.name} is not for a target")

    async def _landed(self, message: Envelope) -> bytes:
        if len(message.payload) != LANDED.size:
            raise ValueError("a notice of a segment has 8 bytes")
        window, length = LANDED.unpack(message.payload)
        if window >= len(self._regions) or length > len(self._regions[window]):
            raise ValueError(f"{length} bytes in window {window}: there is none such")
        with memoryview(self._regions[window].memory) as memory:
            segment = parse(memory[:length])
        if segment.kind is not Kind.SEGMENT or segment.migration != message.migration:
            raise ValueError("the window holds something else")
        if segment.segment >= self._next:
            self._waiting[segment.segment] = segment.payload
        await self._apply_waiting(segment.segment)
        return b""

    async def _apply_waiting(self, number: int) -> None:
        """Segments are applied in their order, whatever order they arrive in."""
        while self._next <= number:
            if self._next not in self._waiting:
                async with self._applied:
                    await self._applied.wait_for(
                        lambda: self._failure or self._next > number or self._next in self._waiting
                    )
                self._check()
                continue
            async with self._applying:
                self._check()
                payload = self._waiting.pop(self._next, None)
                if payload is None:
                    continue
                try:
                    await asyncio.to_thread(self._apply, payload)
                except Exception as error:
                    self._failure = error
                    raise
                finally:
                    async with self._applied:
                        self._next += 1
                        self._applied.notify_all()
                self.taken += len(payload)
        self._waiting.pop(number, None)  # it came twice
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise ValueError(f"an earlier piece could not be applied: {self._failure}")

    def _apply(self, payload: bytes) -> None:
        assert self._applier is not None
        for start in range(0, len(payload), _PIECE):
            self._applier.apply(payload[start : start + _PIECE])
        if self._applier.failed:
            raise ValueError(self._applier.first_failure)

    async def _tail(self, message: Envelope) -> bytes:
        assert self._applier is not None
        assert self._digest is not None
        if not self._applier.complete:
            raise ValueError("the base copy is not whole")
        async with self._applying:
            self._check()
            await asyncio.to_thread(self._apply, message.payload)
        return json.dumps({"lsn": self._applier.lsn, "pending": self._digest.pending}).encode()

    async def _sum(self, message: Envelope) -> bytes:
        """What is here is kept as the log promises before anybody hears of it."""
        assert self._applier is not None
        assert self._digest is not None
        asked = json.loads(message.payload)
        async with self._applying:
            if not await asyncio.to_thread(self.server.engine.commit):
                raise ValueError(f"the target cannot keep it: {self.server.engine.refusal}")
            sum_, keys = await asyncio.to_thread(self._digest.finish, int(asked["now_ms"]))
        return json.dumps({"digest": f"{sum_:016x}/{keys}", "lsn": self._applier.lsn}).encode()


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
