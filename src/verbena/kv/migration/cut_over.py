"""Phase 3 of a move at its source: commands on the slots wait, the target applies the rest of the log, both
compare digests, and the map decides. Commands wait no longer than the pause budget allows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from verbena import _native
from verbena.errors import VerbenaError, setup_error
from verbena.kv.migration.context import MoveContext
from verbena.kv.migration.progress import Progress
from verbena.kv.migration.slot_work import finish_digest
from verbena.kv.migration.target_link import TargetLink
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.envelope import Kind
from verbena.shards.migration import CatchUp, CutOver, Deciding, Moved, RolledBack, State
from verbena.shards.positions import SourcePosition
from verbena.shards.stores import Stored

log = logging.getLogger("verbena.kv.cluster")
_EFFORT = 0.25  # share of the time left that may be spent on sums of large values that changed until the end
_MAX_SLOW_READS = 10  # of the map's store, before the attempt is given up
_RETRY_S = 0.05


class CutOverPhase:
    """`forward(reader, timeout_s)` sends some of the log and advances progress.state, a CatchUp.
    `checkpoint(state, sync)` stores a state; it blocks."""

    def __init__(
        self,
        context: MoveContext,
        progress: Progress,
        link: TargetLink,
        *,
        checkpoint: Callable[[State, bool], Any],
        forward: Callable[..., Awaitable[int]],
        reader: _native.kv.BacklogReader,
        digest: _native.kv.SlotDigest,
    ) -> None:
        self._context = context
        self._progress = progress
        self._link = link
        self._checkpoint = checkpoint
        self._forward = forward
        self._reader = reader
        self._digest = digest
        self._part_began = 0.0
        self._is_owner_known = True  # False while a request to change the owner may be under way

    async def run(self) -> Moved | RolledBack:
        """Returns the end of this attempt, as the map decides. The slots are open again when this returns; if
        it is cancelled while their owner is unknown, they stay fenced."""
        progress = self._progress
        proposed = await self._propose_in_time()
        if isinstance(proposed, RolledBack):
            return proposed
        await self._forward(self._reader)  # what was written meanwhile
        assert isinstance(progress.state, CatchUp)
        if self._context.is_yielding():
            return progress.state.roll_back("a replica is replacing the source")
        fence, slots = self._context.fence, list(progress.facts.slots)
        limits, now = self._context.settings.limits, time.monotonic()
        progress.pause_parts, self._part_began = {}, now
        position = SourcePosition(await asyncio.to_thread(fence.fence, slots))
        self._end_part("fence")
        self._is_owner_known = True
        suspension: asyncio.TimerHandle | None = None
        try:
            state = progress.state.progressed(progress.state.applied, position)
            if not state.is_ready(limits):
                return state.roll_back(f"the target fell {state.behind} records behind")
            fenced = state.fence(limits, now)
            end = await self._drain(state, fenced)
            if isinstance(end, RolledBack):
                return end
            progress.state = end
            await asyncio.to_thread(self._checkpoint, end, False)
            self._end_part("checkpoint")
            # From here until the map answers the owner is unknown. Commands wait for it up to the deadline,
            # then they fail.
            left_s = max(0.0, fenced.deadline - time.monotonic())
            suspension = asyncio.get_running_loop().call_later(left_s, fence.suspend, slots)
            decided = await self._decide(end, proposed, fenced.deadline)
            self._end_part("map")
            if isinstance(decided, Moved):
                await self._notify_target()
                self._end_part("hand_over")
        finally:
            if suspension is not None:
                suspension.cancel()
            if self._is_owner_known:
                fence.resume()
                await asyncio.to_thread(fence.open, slots)
                self._context.engine.post(lambda: None)
                self._end_part("open")
        # The pause ends when commands run again, not when the map has decided.
        return replace(decided, pause_s=time.monotonic() - now)

    def _end_part(self, name: str) -> None:
        """Books the time since the last part under `name`."""
        now = time.monotonic()
        self._progress.pause_parts[name], self._part_began = now - self._part_began, now

    # Compare

    async def _drain(self, state: CatchUp, fenced: CutOver) -> Deciding | RolledBack:
        progress, reader, engine = self._progress, self._reader, self._context.engine
        progress.state = state
        try:
            await asyncio.to_thread(engine.commit)
            while SourcePosition(reader.next_lsn - 1) < fenced.drain_to:
                await self._forward(reader, timeout_s=fenced.deadline - time.monotonic())
                await asyncio.to_thread(engine.commit)
            assert isinstance(progress.state, CatchUp)
            applied = progress.state.applied
            self._end_part("drain")
            progress.state = fenced
            (mine, theirs), _ = await asyncio.gather(
                self._sums(fenced.deadline), asyncio.to_thread(self._checkpoint, fenced, False)
            )
            self._end_part("sums")
        except VerbenaError as error:
            return fenced.roll_back(
                f"the target did not answer: {error.detail or error.what}", time.monotonic()
            )
        return fenced.compared(applied=applied, source=mine, target=theirs, now=time.monotonic())

    async def _sums(self, deadline: float) -> tuple[str, str]:
        """Returns the digests of source and target over the same keys. Large values that changed until the
        end are summed if time allows; a value that one side has not summed is left out by both."""
        now_ms, left_out, effort_s = int(time.time() * 1000), set[int](), 0.0
        while True:
            wanted = {"now_ms": now_ms, "left_out": sorted(left_out), "effort_s": effort_s}
            (sum_, keys, mine), theirs = await asyncio.gather(
                asyncio.to_thread(finish_digest, self._digest, now_ms, sorted(left_out), effort_s),
                self._link.request(Kind.DIGEST, wanted, deadline - time.monotonic()),
            )
            found = left_out.union(mine, theirs.get("left_out", ()))
            if found == left_out:
                return f"{sum_:016x}/{keys}", str(theirs["digest"])
            if effort_s == 0.0:
                effort_s = max(1e-3, (deadline - time.monotonic()) * _EFFORT)
            else:
                left_out = found
                log.warning("%d values are too large to sum while commands wait", len(found))

    # Decide

    async def _propose_in_time(self) -> Stored | RolledBack:
        slow_reads = 0
        while isinstance(proposed := await self._propose(), float):
            slow_reads += 1
            if slow_reads > _MAX_SLOW_READS:
                budget_ms = self._context.settings.limits.pause_budget_s * 1000
                why = f"the map's store takes {proposed * 1000:.1f} ms, and commands may wait {budget_ms:.1f}"
                assert isinstance(self._progress.state, CatchUp)
                return self._progress.state.roll_back(why)
            await self._forward(self._reader)
        return proposed

    async def _propose(self) -> Stored | float:
        """Returns the map with the move finished, and the revision that it replaces; made before commands
        wait. A float: how long the store took to answer, too long for commands to wait."""
        began = time.monotonic()
        stored = await self._context.map.load()
        took_s = time.monotonic() - began
        if took_s > self._context.settings.limits.pause_budget_s / 2:
            return took_s
        finished = await asyncio.to_thread(stored.map.finish_move, self._progress.facts.migration)
        return Stored(stored.revision, finished)

    async def _decide(self, state: Deciding, proposed: Stored, deadline: float) -> Moved | RolledBack:
        """Requests the change of the map, if there is time. If the outcome of the request is unknown, removes
        the move from the map: after that the outcome is certain."""
        facts = self._progress.facts
        try:
            map = await self._swap(proposed, deadline)
        except VerbenaError as error:
            if error.code == "map_not_asked":
                return state.not_asked(error.what, time.monotonic())
            self._is_owner_known = False
            map = await self._remove_move()
            self._is_owner_known = True
        moved = map.owner_of(facts.slots.first) == facts.target
        return state.decided(moved=moved, epoch=map.epoch, now=time.monotonic())

    async def _swap(self, proposed: Stored, deadline: float) -> ClusterMap:
        """Retries when the map has changed in another place. VerbenaError: as compare_and_swap()."""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise setup_error("map_not_asked", operation="move", detail="commands have waited too long")
            try:
                self._is_owner_known = False
                # Half of the time for sending the request, half for the answer.
                map = await self._context.map.swap(proposed, begin_within_s=left_s / 2)
                self._is_owner_known = True
                return map
            except VerbenaError as error:
                self._is_owner_known = error.code in ("map_not_asked", "map_conflict")
                if error.code != "map_conflict":
                    raise
            try:
                again = await asyncio.wait_for(self._propose(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                continue
            if isinstance(again, Stored):
                proposed = again

    async def _remove_move(self) -> ClusterMap:
        """Retries until the store answers."""
        move = self._progress.facts.migration
        while True:
            try:
                return await self._context.map.change(
                    lambda map: map.abort_move(move) if move in map.moves else map
                )
            except VerbenaError:
                await asyncio.sleep(_RETRY_S)

    async def _notify_target(self) -> None:
        """The target reads the new map before clients are redirected to it."""
        context = self._context
        try:
            await self._link.request(
                Kind.OWN, {"revision": context.map.revision}, context.settings.limits.pause_budget_s
            )
        except VerbenaError:
            return  # the target reads the map when it is back
