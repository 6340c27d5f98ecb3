"""The source's side of a move: offers it, copies segments into the target's memory, follows with the log,
cuts over, and has the map decide. Every state that matters is checkpointed before it is acted on."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster.copying import LONGEST_PIECE, MOST_AT_ONCE, Copying
from verbena.kv.cluster.receiver import digest_along, finish
from verbena.shards.bulk import BulkTransport
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.envelope import Envelope, Kind
from verbena.shards.migration import (
    BaseCopy,
    CatchUp,
    CutOver,
    Deciding,
    Moved,
    Prepared,
    RolledBack,
    State,
    is_over,
)
from verbena.shards.positions import SourcePosition
from verbena.shards.stores import Stored
from verbena.transport import RemoteRegion, Session

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode

log = logging.getLogger("verbena.kv.cluster")
_TAIL = 1 << 20
_DIGEST_BACKLOG = 2000
_EFFORT = 0.25  # of the time that is left, for the sums of large values that changed until the end
_MOST_SLOW = 10  # times that the map's store may be too slow before an attempt is given up
_PATIENCE_S = 30.0


class Mover:
    """Runs one attempt from `Prepared` to its end. `checkpoint(state, sync)` writes states down."""

    def __init__(self, node: ClusterNode, state: Prepared, checkpoint: Callable[[State, bool], Any]) -> None:
        self.node = node
        self.state: State = state
        self.facts = state.facts
        self.bulk = BulkTransport(node.carriers.node, wanted=node.settings.migrate_fast)
        self.aborted = ""
        self.wire = ""
        self._checkpoint = checkpoint
        self.fraction = 0.0  # of the base copy
        self.copy_s = 0.0  # how long it took
        self.pause_parts: dict[str, float] = {}  # what commands waited for, in seconds
        self._parted_at = 0.0
        self._slow = 0
        self._is_known = True  # whose the slots are: not while the map is being asked to change that
        self._sequence = 0  # of this attempt's messages, whatever wire they take

    @property
    def target(self) -> Member:
        return self.node.map.members[self.facts.target]

    async def run(self) -> Moved | RolledBack:
        """VerbenaError, OSError: the attempt has failed on the way, and nothing has changed hands."""
        digest: _native.kv.SlotDigest | None = None
        copy: _native.kv.BaseCopy | None = None
        follower: _native.kv.BacklogReader | None = None
        work: asyncio.Task[None] | None = None
        engine, slots = self.node.server.engine, list(self.facts.slots)
        try:
            await self._enter(self.state)
            windows = await self._offer()
            assert isinstance(self.state, Prepared)
            copy = await asyncio.to_thread(self.node.server.base_copy, slots)
            await self._enter(self.state.begin(SourcePosition(max(0, copy.first_lsn - 1))))
            began = time.monotonic()
            await Copying(self, copy, windows).run()
            if self.aborted:
                raise Aborted(self.aborted)
            self.copy_s = time.monotonic() - began
            follower = copy.take_reader()
            digest = _native.kv.SlotDigest(engine, slots)
            work = asyncio.get_running_loop().create_task(digest_along(digest))
            assert isinstance(self.state, BaseCopy)
            await self._enter(self.state.copied(SourcePosition(follower.next_lsn - 1 + follower.lag())))
            await self._catch_up(follower, digest)
            return await self._cut_over(follower, digest)
        finally:
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            for held in (digest, follower, copy):
                if held is not None:
                    held.close()

    async def _enter(self, state: State, *, sync: bool = True) -> None:
        self.state = state
        await asyncio.to_thread(self._checkpoint, state, sync)
        if self.aborted and not isinstance(state, Deciding | Moved) and not is_over(state):
            raise Aborted(self.aborted)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def skip_sequences(self, count: int) -> None:
        """Somebody else has used them."""
        self._sequence += max(0, count)

    def message(self, kind: Kind, payload: bytes = b"", **fields: Any) -> Envelope:
        if "sequence" not in fields:
            fields["sequence"] = self.next_sequence()
        return self.node.peers.envelope(
            kind,
            self.target,
            payload,
            first_shard=self.facts.slots.first,
            last_shard=self.facts.slots.last,
            migration=bytes.fromhex(self.facts.migration),
            **fields,
        )

    async def _ask(self, kind: Kind, value: dict[str, Any], timeout_s: float = _PATIENCE_S) -> dict[str, Any]:
        message = self.message(kind, json.dumps(value).encode())
        answer = await self.node.peers.ask(self.target, message, timeout_s=timeout_s)
        found: dict[str, Any] = json.loads(answer.payload or b"{}")
        return found

    # Phase 1

    async def _offer(self) -> list[RemoteRegion]:
        """The target's windows. If it knows of later attempts than we do (a checkpoint was lost) it says so:
        attempts never go back, so this becomes the one after them."""
        while "taken" in (answer := await self._ask(Kind.OFFER, self._offered())):
            assert isinstance(self.state, Prepared)
            later = self.state.after(int(answer["taken"]))
            self.facts = later.facts
            await self._enter(later)
        return [RemoteRegion.from_bytes(bytes.fromhex(one)) for one in answer["windows"]]

    def _offered(self) -> dict[str, Any]:
        settings = self.node.settings
        return {
            "attempt": self.facts.attempt,
            "slots": str(self.facts.slots),
            "windows": min(MOST_AT_ONCE, settings.num_memory_regions),
            "window_bytes": min(LONGEST_PIECE, settings.max_send_size),
            "bytes": self._expected_bytes(),
        }

    def _expected_bytes(self) -> int:
        """Their share of the store, as if all slots held as much."""
        node = self.node
        owned = sum(len(found) for found in node.map.slots_of(node.id))
        used = int(node.server.engine.figures()["used_bytes"])
        return used * len(self.facts.slots) // max(1, owned)

    def acknowledged(self, nbytes: int, pieces: int, by_rdma: bool, wire: str) -> None:
        """The target has applied that much."""
        if not pieces:
            return
        self.wire = wire or self.wire
        self.bulk.acknowledged(nbytes, pieces, by_rdma=by_rdma)
        if isinstance(self.state, BaseCopy):
            self.state = self.state.acknowledge(nbytes)

    async def session(self) -> tuple[Session, bool]:
        self.bulk.look()
        if self.bulk.is_available:
            try:
                session = await self.node.carriers.session(self.target, fast=True)
                self.bulk.connected(session)
            except VerbenaError:
                self.bulk.failed()
            else:
                if self.bulk.is_available:
                    return session, True
        return await self.node.peers.session(self.target, fast=False), False

    # Phase 2

    async def _catch_up(self, follower: _native.kv.BacklogReader, digest: _native.kv.SlotDigest) -> None:
        limits = self.node.settings.limits
        while True:
            assert isinstance(self.state, CatchUp)
            pending = await self._forward(follower)
            ready = self.state.is_ready(limits)
            if ready and max(pending, digest.pending) <= _DIGEST_BACKLOG and await self._is_summed(digest):
                return
            if self.aborted:
                raise Aborted(self.aborted)
            await asyncio.to_thread(follower.wait, 0.002)

    async def _is_summed(self, digest: _native.kv.SlotDigest) -> bool:
        return bool(await asyncio.to_thread(digest.work, 0.001))

    async def _forward(self, follower: _native.kv.BacklogReader, *, timeout_s: float = _PATIENCE_S) -> int:
        """Some of the log to the target; how many keys its digest is behind."""
        assert isinstance(self.state, CatchUp)
        records, following = await asyncio.to_thread(follower.read, _TAIL)
        message = self.message(Kind.TAIL, records, offset=following)
        answer = await self.node.peers.ask(self.target, message, timeout_s=timeout_s)
        head = SourcePosition(following - 1 + follower.lag())
        # What is not of these slots was passed over: it counts as applied.
        self.state = self.state.progressed(SourcePosition(following - 1), head)
        return int(json.loads(answer.payload)["pending"])

    # Phase 3

    async def _cut_over(
        self, follower: _native.kv.BacklogReader, digest: _native.kv.SlotDigest
    ) -> Moved | RolledBack:
        engine, gate, slots = self.node.server.engine, self.node.gate, list(self.facts.slots)
        assert isinstance(self.state, CatchUp)
        await self._enter(self.state)
        proposed = await self._propose()
        while isinstance(proposed, float):
            self._slow += 1
            if self._slow > _MOST_SLOW:
                budget_ms = self.node.settings.limits.pause_budget_s * 1000
                why = f"the map's store takes {proposed * 1000:.1f} ms, and commands may wait {budget_ms:.1f}"
                return self.state.roll_back(why)
            await self._forward(follower)
            proposed = await self._propose()
        await self._forward(follower)  # what was written meanwhile
        if self.node.roles.is_yielding:
            return self.state.roll_back("the source gives way to a replica")
        limits, now = self.node.settings.limits, time.monotonic()
        self.pause_parts, self._parted_at = {}, now
        position = SourcePosition(await asyncio.to_thread(gate.fence, slots))
        self._part("fence")
        self._is_known = True
        patience: asyncio.TimerHandle | None = None
        try:
            state = self.state.progressed(self.state.applied, position)
            if not state.is_ready(limits):
                return state.roll_back(f"the target fell {state.behind} records behind")
            fenced = state.fence(limits, now)
            end = await self._drain(state, fenced, follower, digest)
            if isinstance(end, RolledBack):
                return end
            self.state = end
            await asyncio.to_thread(self._checkpoint, end, False)
            self._part("checkpoint")
            # From here on nobody knows for a while whose they are: commands are not served, and do not wait
            # longer than they may either.
            left_s = max(0.0, fenced.deadline - time.monotonic())
            patience = self.node.loop.call_later(left_s, gate.suspend, slots)
            decided = await self._decide(end, proposed, fenced.deadline)
            self._part("map")
            if isinstance(decided, Moved):
                await self._hand_over()
                self._part("hand_over")
        finally:
            if patience is not None:
                patience.cancel()
            if self._is_known:
                gate.resume()
                await asyncio.to_thread(gate.open, slots)
                engine.post(lambda: None)
                self._part("open")
        return replace(
            decided, pause_s=time.monotonic() - now
        )  # until they may go on, not until it is decided

    def _part(self, name: str) -> None:
        """What has passed since the part before was for this."""
        now = time.monotonic()
        self.pause_parts[name], self._parted_at = now - self._parted_at, now

    async def _drain(
        self,
        state: CatchUp,
        fenced: CutOver,
        follower: _native.kv.BacklogReader,
        digest: _native.kv.SlotDigest,
    ) -> Deciding | RolledBack:
        engine = self.node.server.engine
        self.state = state
        try:
            await asyncio.to_thread(engine.commit)
            while SourcePosition(follower.next_lsn - 1) < fenced.drain_to:
                await self._forward(follower, timeout_s=fenced.deadline - time.monotonic())
                await asyncio.to_thread(engine.commit)
            assert isinstance(self.state, CatchUp)
            applied = self.state.applied
            self._part("drain")
            self.state = fenced
            (mine, theirs), _ = await asyncio.gather(
                self._sums(digest, fenced.deadline), asyncio.to_thread(self._checkpoint, fenced, False)
            )
            self._part("sums")
        except VerbenaError as error:
            return fenced.roll_back(
                f"the target did not answer: {error.detail or error.what}", time.monotonic()
            )
        return fenced.compared(applied=applied, source=mine, target=theirs, now=time.monotonic())

    async def _sums(self, digest: _native.kv.SlotDigest, deadline: float) -> tuple[str, str]:
        """Ours and the target's, over the same. Large values that changed until now are summed if that fits;
        what one has not summed then, both leave out."""
        now_ms, left_out, effort_s = int(time.time() * 1000), set[int](), 0.0
        while True:
            asked = {"now_ms": now_ms, "left_out": sorted(left_out), "effort_s": effort_s}
            (sum_, keys, mine), theirs = await asyncio.gather(
                asyncio.to_thread(finish, digest, now_ms, sorted(left_out), effort_s),
                self._ask(Kind.DIGEST, asked, deadline - time.monotonic()),
            )
            found = left_out.union(mine, theirs.get("left_out", ()))
            if found == left_out:
                return f"{sum_:016x}/{keys}", str(theirs["digest"])
            if effort_s == 0.0:
                effort_s = max(1e-3, (deadline - time.monotonic()) * _EFFORT)
            else:
                left_out = found
                log.warning("%d values are too large to sum while commands wait", len(found))

    async def _propose(self) -> Stored | float:
        """The map without the move, and the revision that it can follow: made while nobody waits for it. Or
        how long its store took, if that is too long for commands to wait."""
        began = time.monotonic()
        held = await self.node.store.load()
        took_s = time.monotonic() - began
        if took_s > self.node.settings.limits.pause_budget_s / 2:
            return took_s
        return Stored(held.revision, await asyncio.to_thread(held.map.finish_move, self.facts.migration))

    async def _decide(self, state: Deciding, proposed: Stored, deadline: float) -> Moved | RolledBack:
        """Asks the map, if there is time to. If nobody can say what became of that, the move is taken off it,
        which settles it."""
        try:
            map = await self._swap(proposed, deadline)
        except VerbenaError as error:
            if error.code == "map_not_asked":
                return state.not_asked(error.what, time.monotonic())
            self._is_known = False
            map = await self._take_off()
            self._is_known = True
        moved = map.owner_of(self.facts.slots.first) == self.facts.target
        return state.decided(moved=moved, epoch=map.epoch, now=time.monotonic())

    async def _swap(self, proposed: Stored, deadline: float) -> ClusterMap:
        """Again if somebody has changed something else. VerbenaError: as compare_and_swap()."""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise setup_error("map_not_asked", operation="move", detail="commands have waited too long")
            try:
                self._is_known = False
                map = await self.node.swap(proposed, begin_within_s=left_s / 2)  # and half for the answer
                self._is_known = True
                return map
            except VerbenaError as error:
                self._is_known = error.code in ("map_not_asked", "map_conflict")
                if error.code != "map_conflict":
                    raise
            try:
                again = await asyncio.wait_for(self._propose(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                continue
            if isinstance(again, Stored):
                proposed = again

    async def _take_off(self) -> ClusterMap:
        node, move = self.node, self.facts.migration
        while True:
            try:
                return await node.change(lambda map: map.abort_move(move) if move in map.moves else map)
            except VerbenaError:
                await asyncio.sleep(0.05)

    async def _hand_over(self) -> None:
        """The target hears of it before our clients are sent there."""
        try:
            await self._ask(
                Kind.OWN, {"revision": self.node.revision}, self.node.settings.limits.pause_budget_s
            )
        except VerbenaError:
            return  # it will read the map when it is back

    async def finish(self, state: Moved) -> State:
        """Our copy goes."""
        await self._enter(state)
        await self.node.moves.clear(self.facts.slots)
        done = state.cleaned()
        await self._enter(done)
        return done

    async def call_off(self) -> None:
        """The target forgets; if it does not hear, it will when it starts, or with the next offer."""
        try:
            await self._ask(Kind.ABORT, {}, 5.0)
        except (VerbenaError, KeyError):
            return


class Aborted(Exception):
    """Somebody does not want it any more."""
