"""The target of a move: memory for the base copy, the log applier, the digest. No command is served from
these slots until the map assigns them to this node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.migration.slot_work import finish_digest, keep_digest, remove_keys
from verbena.shards.envelope import HEADER_BYTES, Envelope, Kind
from verbena.shards.migration import Facts
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.transport import Node, Region, Session

_MAX_WINDOWS = 64
_MAX_LENDINGS = 8  # in one attempt: the source changes its session when a wire fails
_MAX_WINDOW_BYTES = 64 << 20
_RESERVE_TIMEOUT_S = 5.0  # memory that is not reserved by then is allocated on demand
_MAX_EFFORT_S = 10.0


class MoveTarget:
    """One attempt of one move. Every message is an envelope, checked before it is used. Native code receives
    the segments of the base copy, through `copy_receivers`."""

    def __init__(
        self,
        move: Facts,
        *,
        engine: _native.kv.Engine,
        make_applier: Callable[[Iterable[int]], _native.kv.LogApplier],
        node: Node,
        copy_receivers: _native.kv.CopyReceivers,
    ) -> None:
        self.slots = move.slots
        self.attempt = move.attempt
        self.source = move.source
        self.borrower: Session | None = None  # the windows are lent to it
        self._migration = bytes.fromhex(move.migration)
        self._engine = engine
        self._make_applier = make_applier
        self._node = node
        self._copy_receivers = copy_receivers
        self._copy_receiver: _native.kv.CopyReceiver | None = None
        self._windows, self._window_bytes = 0, 0
        self._lendings = 0
        self._lending = asyncio.Lock()
        self._closed = False
        self._regions: list[Region] = []
        self._applier: _native.kv.LogApplier | None = None
        self._digest: _native.kv.SlotDigest | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="receiver")  # applies the log, in order
        self._worker: asyncio.Task[None] | None = None
        self.observer: Callable[[bytes, bytes], None] | None = (
            None  # called with each segment's notice and bytes
        )

    async def open(self, *, windows: int, window_bytes: int, nbytes: int) -> None:
        """Removes what an earlier attempt left, reserves memory for about `nbytes` of values, and prepares to
        lend windows for the base copy. ValueError: the request is out of bounds."""
        if not 0 < windows <= _MAX_WINDOWS or not HEADER_BYTES < window_bytes <= _MAX_WINDOW_BYTES:
            raise ValueError(f"{windows} windows of {window_bytes} bytes are not lent")
        await remove_keys(self._engine, self.slots)
        await asyncio.to_thread(self._engine.reserve, max(0, nbytes), seconds=_RESERVE_TIMEOUT_S)
        self._windows, self._window_bytes = windows, window_bytes
        self._applier = self._make_applier(list(self.slots))
        self._copy_receiver = self._copy_receivers.open(
            self._engine, self._migration, bytes.fromhex(self.source), self._applier, observer=self.observer
        )

    async def lend(self, session: Session) -> list[str]:
        """Lends windows to this session of the source alone, and revokes those lent to another. Returns their
        keys, in hexadecimal. ValueError: the session has changed too often."""
        async with self._lending:
            if self._copy_receiver is None or self._closed:
                raise ValueError("this attempt has not begun, or has ended")
            if session is not self.borrower:
                if self._lendings == _MAX_LENDINGS:
                    raise ValueError(f"windows were lent {self._lendings} times in this attempt")
                self._lendings += 1
                await self._revoke()
                self._regions = await asyncio.to_thread(self._allocate, session)
                self._copy_receiver.lend(session.id, list(self._regions))
                self.borrower = session
            return [region.remote.to_bytes().hex() for region in self._regions]

    def _allocate(self, session: Session) -> list[Region]:
        access = Access.REMOTE_WRITE | Access.LOCAL_WRITE
        return [
            self._node.allocate(self._window_bytes, access=access, session=session)
            for _ in range(self._windows)
        ]

    def withdraw(self) -> None:
        """Refuses further pieces: the session has lost its rights. Their memory is revoked by close() at the
        latest."""
        if self._copy_receiver is not None:
            self._copy_receiver.withdraw()

    async def _revoke(self) -> None:
        regions, self._regions = self._regions, []
        for region in regions:
            await asyncio.to_thread(region.close)

    async def close(self) -> None:
        """Nothing is applied after this returns."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        if self._copy_receiver is not None:
            await asyncio.to_thread(self._copy_receiver.close)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        if self._digest is not None:
            self._digest.close()
        if self._applier is not None:
            self._applier.close()
        async with self._lending:
            self._closed = True
            await self._revoke()

    async def serve(self, message: Envelope, session: Session) -> bytes:
        """Returns the answer's payload. ValueError: the message is refused."""
        if message.kind is Kind.WINDOWS:
            return json.dumps({"windows": await self.lend(session)}).encode()
        if message.kind is Kind.TAIL:
            return await self._apply_log(message)
        if message.kind is Kind.DIGEST:
            return await self._sum(message)
        raise ValueError(f"{message.kind.name} is not for a target")

    async def _apply_log(self, message: Envelope) -> bytes:
        assert self._applier is not None
        if not self._applier.complete:
            raise ValueError("the base copy is not whole")
        if self._digest is None:
            self._digest = _native.kv.SlotDigest(self._engine, list(self.slots))
            self._worker = self._loop.create_task(keep_digest(self._digest))
        await self._loop.run_in_executor(self._thread, self._apply, message.payload)
        return json.dumps({"lsn": self._applier.lsn, "pending": self._digest.pending}).encode()

    async def _sum(self, message: Envelope) -> bytes:
        """Answers with the digest; before that, the keys are as durable as the configuration promises."""
        assert self._applier is not None
        if self._digest is None:
            raise ValueError("the base copy is not whole")
        wanted = json.loads(message.payload)
        now_ms, left_out = int(wanted["now_ms"]), [int(name) for name in wanted.get("left_out", ())]
        effort_s = min(_MAX_EFFORT_S, float(wanted.get("effort_s", 0.0)))
        sum_, keys, mine = await self._loop.run_in_executor(
            self._thread, self._finish, now_ms, left_out, effort_s
        )
        answer = {"digest": f"{sum_:016x}/{keys}", "left_out": mine, "lsn": self._applier.lsn}
        return json.dumps(answer).encode()

    # On the thread

    def _apply(self, payload: bytes) -> None:
        """The envelope's checksum has been verified."""
        assert self._applier is not None
        assert self._copy_receiver is not None
        if self._copy_receiver.failure:
            raise ValueError(f"an earlier piece could not be applied: {self._copy_receiver.failure}")
        self._applier.apply(payload, checked=True)
        if self._applier.failed:
            raise ValueError(self._applier.first_failure)

    def _finish(self, now_ms: int, left_out: list[int], effort_s: float) -> tuple[int, int, list[int]]:
        assert self._digest is not None
        if not self._engine.commit():
            raise ValueError(f"the target cannot keep it: {self._engine.refusal}")
        return finish_digest(self._digest, now_ms, left_out, effort_s)
