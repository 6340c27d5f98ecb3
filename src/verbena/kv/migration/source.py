"""The source of a move: offers it, copies the slots into the target's memory, follows with the log, cuts
over. Each state is checkpointed before the source acts on it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from verbena import _native
from verbena.errors import VerbenaError
from verbena.kv.migration.context import MoveContext
from verbena.kv.migration.copy import MAX_PIECE_BYTES, MAX_PIECES_IN_FLIGHT, BaseCopySender
from verbena.kv.migration.copy_path import CopyPath
from verbena.kv.migration.cut_over import CutOverPhase
from verbena.kv.migration.progress import Aborted, Progress
from verbena.kv.migration.slot_work import keep_digest
from verbena.kv.migration.target_link import REQUEST_TIMEOUT_S, TargetLink
from verbena.shards.envelope import Kind
from verbena.shards.migration import (
    BaseCopy,
    CatchUp,
    Deciding,
    Facts,
    Moved,
    Prepared,
    RolledBack,
    State,
    is_over,
)
from verbena.shards.positions import SourcePosition

_MAX_LOG_BYTES = 1 << 20  # in one message
_MAX_DIGEST_BACKLOG = 2000  # keys, when writes stop
_ABORT_TIMEOUT_S = 5.0


class MoveSource:
    """Runs one attempt from `Prepared` to its end. `checkpoint(state, sync)` stores a state; it blocks."""

    def __init__(
        self, context: MoveContext, state: Prepared, checkpoint: Callable[[State, bool], Any]
    ) -> None:
        copy_sessions = context.copy_sessions()
        path = CopyPath(copy_sessions.node, wanted=context.settings.rdma)
        self.progress = Progress(state, state.facts, path)
        self.link = TargetLink(
            state.facts, path, map=context.map, sessions=context.sessions, copy_sessions=copy_sessions
        )
        self._context = context
        self._checkpoint = checkpoint

    @property
    def facts(self) -> Facts:
        return self.progress.facts

    async def run(self) -> Moved | RolledBack:
        """Aborted: the map marks the move as aborting. VerbenaError, OSError: the attempt failed; the source
        still owns the slots."""
        progress, context = self.progress, self._context
        digest: _native.kv.SlotDigest | None = None
        copy: _native.kv.BaseCopy | None = None
        reader: _native.kv.BacklogReader | None = None
        work: asyncio.Task[None] | None = None
        slots = list(self.facts.slots)
        try:
            await self._enter(progress.state)
            await self.offer()
            assert isinstance(progress.state, Prepared)
            copy = await asyncio.to_thread(context.begin_copy, slots)
            await self._enter(progress.state.begin(SourcePosition(max(0, copy.first_lsn - 1))))
            began = time.monotonic()
            await self.copy_sender(copy).run()
            progress.check_aborted()
            progress.copy_s = time.monotonic() - began
            reader = copy.take_reader()
            digest = _native.kv.SlotDigest(context.engine, slots)
            work = asyncio.get_running_loop().create_task(keep_digest(digest))
            assert isinstance(progress.state, BaseCopy)
            await self._enter(progress.state.copied(SourcePosition(reader.next_lsn - 1 + reader.lag())))
            await self._catch_up(reader, digest)
            await self._enter(progress.state)
            cut_over = CutOverPhase(
                context,
                progress,
                self.link,
                checkpoint=self._checkpoint,
                forward=self._forward,
                reader=reader,
                digest=digest,
            )
            return await cut_over.run()
        finally:
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            for resource in (digest, reader, copy):
                if resource is not None:
                    resource.close()

    async def finish(self, state: Moved, remove_keys: Callable[[], Any]) -> State:
        """After the map has handed the slots over: `remove_keys` (a coroutine function) removes this copy."""
        await self._enter(state)
        await remove_keys()
        done = state.cleaned()
        await self._enter(done)
        return done

    async def abort(self) -> None:
        """Requests that the target discard what it has. If the request is lost, the target discards it when
        it starts, or with the next offer."""
        try:
            await self.link.request(Kind.ABORT, {}, _ABORT_TIMEOUT_S)
        except (VerbenaError, KeyError):
            return

    async def _enter(self, state: State) -> None:
        self.progress.state = state
        await asyncio.to_thread(self._checkpoint, state, True)
        if self.progress.aborted and not isinstance(state, Deciding | Moved) and not is_over(state):
            raise Aborted(self.progress.aborted)

    # Phase 1

    async def offer(self) -> None:
        """Makes the target prepare. If a checkpoint was lost, the target has seen later attempts, and answers
        with the last one: this attempt then becomes the one after it."""
        while "taken" in (answer := await self.link.request(Kind.OFFER, self._offered())):
            assert isinstance(self.progress.state, Prepared)
            later = self.progress.state.after(int(answer["taken"]))
            self.progress.facts = later.facts
            await self._enter(later)

    def copy_sender(self, copy: _native.kv.BaseCopy) -> BaseCopySender:
        """Returns the sender of the base copy; offer() comes first."""
        windows, window_bytes = self._windows()
        return BaseCopySender(
            copy, windows=windows, window_bytes=window_bytes, link=self.link, progress=self.progress
        )

    def _offered(self) -> dict[str, Any]:
        windows, window_bytes = self._windows()
        return {
            "attempt": self.facts.attempt,
            "slots": str(self.facts.slots),
            "windows": windows,
            "window_bytes": window_bytes,
            "bytes": self._expected_bytes(),
        }

    def _windows(self) -> tuple[int, int]:
        """Returns the number of windows, and their length."""
        settings = self._context.settings
        return (
            min(MAX_PIECES_IN_FLIGHT, settings.num_memory_regions),
            min(MAX_PIECE_BYTES, settings.max_send_size),
        )

    def _expected_bytes(self) -> int:
        """Returns the slots' share of the store, as if all slots held the same amount."""
        context = self._context
        owned = sum(len(found) for found in context.map.map.slots_of(context.member))
        used = int(context.engine.counters()["used_bytes"])
        return used * len(self.facts.slots) // max(1, owned)

    # Phase 2

    async def _catch_up(self, reader: _native.kv.BacklogReader, digest: _native.kv.SlotDigest) -> None:
        """Until the target is close enough for the cut-over, and both digests nearly are up to date."""
        limits = self._context.settings.limits
        while True:
            assert isinstance(self.progress.state, CatchUp)
            pending = await self._forward(reader)
            behind = max(pending, digest.pending)
            ready = self.progress.state.is_ready(limits) and behind <= _MAX_DIGEST_BACKLOG
            if ready and await asyncio.to_thread(digest.work, 0.001):
                return
            self.progress.check_aborted()
            await asyncio.to_thread(reader.wait, 0.002)

    async def _forward(self, reader: _native.kv.BacklogReader, timeout_s: float = REQUEST_TIMEOUT_S) -> int:
        """Sends some of the log to the target; the number of keys that its digest is behind."""
        records, following = await asyncio.to_thread(reader.read, _MAX_LOG_BYTES)
        answer = await self.link.send(
            self.link.message(Kind.TAIL, records, offset=following), timeout_s=timeout_s
        )
        head = SourcePosition(following - 1 + reader.lag())
        assert isinstance(self.progress.state, CatchUp)
        # The reader skips records of other slots: they count as applied.
        self.progress.state = self.progress.state.progressed(SourcePosition(following - 1), head)
        return int(json.loads(answer.payload)["pending"])
