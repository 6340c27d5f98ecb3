"""The moves of one node: those whose source it is, those whose target it is, and their recovery at start."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from verbena import _native
from verbena.errors import VerbenaError, setup_error
from verbena.kv.migration.checkpoint import Checkpoints
from verbena.kv.migration.context import MoveContext, reason
from verbena.kv.migration.progress import Aborted
from verbena.kv.migration.slot_work import remove_keys
from verbena.kv.migration.source import MoveSource
from verbena.kv.migration.target import MoveTarget
from verbena.shards.cluster_map import ClusterMap, Move
from verbena.shards.envelope import Envelope, Kind
from verbena.shards.migration import Facts, Moved, Prepared, RolledBack, State, is_over, recover
from verbena.shards.slots import SlotRange
from verbena.transport import Session

log = logging.getLogger("verbena.kv.cluster")
_MAX_ENDED = 64  # moves that status() still shows
_RETRY_S = 0.2
ABORTED = "it was aborted"


class MoveManager:
    """`spawn` starts a task that ends with the node."""

    def __init__(
        self,
        context: MoveContext,
        checkpoints: Checkpoints,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[Any]],
    ) -> None:
        self.context = context
        self.checkpoints = checkpoints
        self._spawn_task = spawn
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._sources: OrderedDict[str, MoveSource] = OrderedDict()
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._targets: dict[str, MoveTarget] = {}
        self._copy_receivers = _native.kv.CopyReceivers(context.sessions.node._native)
        self._attempts: dict[str, int] = {}  # the last one of each unfinished move: attempts only grow
        self.outcomes = {"done": 0, "rolled_back": 0}  # of moves whose source this node was
        self._recovered = False  # the checkpoints are dealt with first, then the map
        self._removing = asyncio.Lock()

    @property
    def _map(self) -> ClusterMap:
        return self.context.map.map

    async def recover(self) -> None:
        """At start: continues unfinished moves, and removes keys of slots that other nodes own."""
        member = self.context.member
        for state in await asyncio.to_thread(self.checkpoints.read_all):
            facts = state.facts
            owns = self._map.owner_of(facts.slots.first) == member
            known = facts.migration in self._map.moves
            now = recover(state, owns=owns, known=known, limits=self.context.settings.limits)
            log.info("move %s was at %s, continues at %s", facts.migration, state.phase.name, now.phase.name)
            await asyncio.to_thread(self.checkpoints.write, now)
            self._attempts[facts.migration] = facts.attempt
            if isinstance(now, Prepared):
                self._spawn(facts.migration, self._run(now))
            elif not is_over(now) or known:
                self._spawn(facts.migration, self._settle(self._source(Prepared(facts)), now))
            else:
                self.checkpoints.remove(facts.migration)
        if member not in self._map.replicas:
            removed = await self.remove_foreign_keys(
                slot for slot, owner in enumerate(self._map.table) if owner is not None
            )
            if removed:
                log.info("%d keys of slots that other nodes own were removed", removed)
        self._recovered = True
        self.update()

    def update(self) -> None:
        """After a change of the map: starts moves whose source is this node, and ends aborted ones."""
        if not self._recovered:
            return
        for move in self._map.moves.values():
            if move.source == self.context.member and move.id not in self._tasks:
                if move.aborting:
                    end = RolledBack(_facts(move), ABORTED)
                    self._spawn(move.id, self._settle(self._source(Prepared(end.facts)), end))
                else:
                    attempt = self._attempts.get(move.id, 0) + 1
                    self._spawn(move.id, self._run(Prepared(_facts(move, attempt))))
            if move.aborting and move.id in self._sources:
                self._sources[move.id].progress.aborted = ABORTED
        for id in [id for id in self._targets if id not in self._map.moves]:
            self._spawn_task(self._discard(id))

    async def remove_foreign_keys(self, slots: Iterable[int]) -> int:
        """Removes the keys of those of the slots that this node neither owns nor receives. No move to this
        node begins before it has ended."""
        async with self._removing:
            table, targets = self._map.table, [target.slots for target in self._targets.values()]
            foreign = [
                slot
                for slot in slots
                if table[slot] != self.context.member and not any(slot in taken for taken in targets)
            ]
            return await remove_keys(self.context.engine, foreign) if foreign else 0

    def status(self) -> list[dict[str, Any]]:
        """Returns moves whose source this node is, the last ones that ended included, as the command line
        shows them."""
        running = [source.progress for source in self._sources.values()]
        return [*self._ended.values(), *(progress.describe(progress.state) for progress in running)]

    @property
    def copied_bytes(self) -> int:
        """What the targets have acknowledged of the moves in progress whose source this node is."""
        return sum(source.progress.path.bytes_transferred for source in list(self._sources.values()))

    # Source

    def _source(self, state: Prepared) -> MoveSource:
        return MoveSource(self.context, state, self._checkpoint)

    def _checkpoint(self, state: State, sync: bool) -> None:
        self.checkpoints.write(state, sync=sync)

    def _spawn(self, migration: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn_task(work)
        self._tasks[migration] = task
        task.add_done_callback(lambda _: self._tasks.pop(migration, None))

    async def _run(self, state: Prepared) -> None:
        """Runs attempts until one succeeds, the limit is reached, or the move is aborted."""
        migration = state.facts.migration
        while True:
            source = self._source(state)
            self._sources[migration] = source
            try:
                end: Moved | RolledBack = await source.run()
            except Aborted as error:
                return await self._settle(source, RolledBack(source.facts, str(error)))
            except (VerbenaError, OSError, ValueError, MemoryError, asyncio.TimeoutError) as error:
                end = RolledBack(source.facts, reason(error))
            self._attempts[migration] = source.facts.attempt
            if isinstance(end, Moved):
                return await self._settle(source, end)
            log.warning("move %s, attempt %d: %s", migration, source.facts.attempt, end.why)
            again = Prepared(source.facts).again(self.context.settings.limits)
            if isinstance(again, RolledBack) or migration not in self._map.moves:
                return await self._settle(source, end)
            await source.abort()
            await asyncio.sleep(_RETRY_S)
            state = again

    async def _settle(self, source: MoveSource, end: State) -> None:
        """Completes the move or undoes it; then its checkpoint is removed."""
        migration = source.facts.migration
        if isinstance(end, Moved):
            end = await source.finish(end, partial(self.remove_foreign_keys, source.facts.slots))
        else:
            source.progress.state = end
            await asyncio.to_thread(self.checkpoints.write, end)
            await source.abort()
            await self.context.map.change(
                lambda map: map.abort_move(migration) if migration in map.moves else map
            )
        self._sources.pop(migration, None)
        self._attempts.pop(migration, None)
        self._ended[migration] = source.progress.describe(end)
        self.outcomes["rolled_back" if isinstance(end, RolledBack) else "done"] += 1
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
        await asyncio.to_thread(self.checkpoints.remove, migration)
        log.info("move %s of slots %s: %s", migration, source.facts.slots, end.phase.name.lower())

    # Target

    async def serve(self, message: Envelope, session: Session) -> bytes:
        """Answers a source's message, as its target; the session may send it. ValueError or VerbenaError: the
        message is refused."""
        migration = message.migration.hex()
        if message.kind is Kind.OFFER:
            return await self._accept(migration, message)
        if message.kind is Kind.ABORT:
            await self.context.map.refresh()  # this node may own the slots by now
            await self._discard(migration)
            return b""
        if message.kind is Kind.OWN:
            await self.context.map.refresh()
            return b""
        found = self._targets.get(migration)
        if found is None or found.source != message.source.hex():
            raise setup_error(
                "move_failed", operation="receive", detail="this node knows no such move, or a newer attempt"
            )
        return await found.serve(message, session)

    @property
    def refused_notices(self) -> int:
        """The number of notices of base copies that were refused because of the session that sent them."""
        return self._copy_receivers.refused

    def withdraw(self, sessions: Iterable[Session]) -> None:
        """Takes no further pieces from these sessions, which have lost their rights."""
        ended = set(sessions)
        for target in self._targets.values():
            if target.borrower in ended:
                target.withdraw()

    async def _accept(self, migration: str, message: Envelope) -> bytes:
        wanted = json.loads(message.payload)
        slots, attempt = SlotRange.parse(str(wanted["slots"])), int(wanted["attempt"])
        map, member = await self.context.map.refresh(), self.context.member
        move = map.moves.get(migration)
        if move is None or move.slots != slots or move.target != member:
            raise ValueError("the map knows no such move")
        if move.source != message.source.hex():
            raise ValueError("the slots are another node's to give")
        former = self._targets.get(migration)
        if former is not None:
            if attempt <= former.attempt:
                return json.dumps({"taken": former.attempt}).encode()
            await former.close()
        async with self._removing:
            target = self._targets[migration] = MoveTarget(
                _facts(move, attempt),
                engine=self.context.engine,
                make_applier=self.context.make_applier,
                node=self.context.sessions.node,
                copy_receivers=self._copy_receivers,
            )
            await target.open(
                windows=int(wanted["windows"]),
                window_bytes=int(wanted["window_bytes"]),
                nbytes=int(wanted.get("bytes", 0)),
            )
        return b"{}"

    async def _discard(self, migration: str) -> None:
        """Ends receiving, and removes what was applied unless this node owns the slots now."""
        target = self._targets.pop(migration, None)
        if target is not None:
            await target.close()
            await self.remove_foreign_keys(target.slots)


def _facts(move: Move, attempt: int = 1) -> Facts:
    return Facts(move.id, move.slots, move.source, move.target, attempt)
