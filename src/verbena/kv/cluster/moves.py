"""The moves that a node takes part in: those it gives, those it takes, and what a restart makes of them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.errors import VerbenaError
from verbena.kv.cluster.mover import Aborted, Mover
from verbena.kv.cluster.receiver import Receiver, no_such_move, sweep
from verbena.shards.checkpoint import Checkpoints
from verbena.shards.cluster_map import Move
from verbena.shards.envelope import Envelope, Kind
from verbena.shards.migration import (
    BaseCopy,
    CatchUp,
    Done,
    Facts,
    Moved,
    Prepared,
    RolledBack,
    State,
    is_over,
    recover,
)
from verbena.shards.slots import SlotRange

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode

log = logging.getLogger("verbena.kv.cluster")
_REMEMBERED = 64
_PAUSE_S = 0.2


class Moves:
    def __init__(self, node: ClusterNode, checkpoints: Checkpoints) -> None:
        self.node = node
        self.checkpoints = checkpoints
        self._giving: dict[str, asyncio.Task[Any]] = {}
        self._movers: OrderedDict[str, Mover] = OrderedDict()
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._taking: dict[str, Receiver] = {}
        self._landings = _native.kv.CopyReceivers(node.peers.node._native)
        self._attempts: dict[str, int] = {}  # the last of each move that is not over: they never go back
        self._recovered = False  # until then what the checkpoints say comes first
        self._clearing = asyncio.Lock()

    async def recover(self) -> None:
        """At the start: goes on with what was under way, and lets go of keys that belong to others."""
        node = self.node
        for state in await asyncio.to_thread(self.checkpoints.read_all):
            facts = state.facts
            owns = node.map.owner_of(facts.slots.first) == node.id
            known = facts.migration in node.map.moves
            now = recover(state, owns=owns, known=known, limits=node.settings.limits)
            log.info("move %s was at %s, goes on at %s", facts.migration, state.phase.name, now.phase.name)
            await asyncio.to_thread(self.checkpoints.write, now)
            self._attempts[facts.migration] = facts.attempt
            if isinstance(now, Prepared):
                self._give(now)
            elif not is_over(now) or known:
                self._spawn(facts.migration, self._settle(Mover(node, Prepared(facts), self._write), now))
            else:
                self.checkpoints.remove(facts.migration)
        if node.id not in node.map.replicas:
            removed = await self.clear(slot for slot, owner in enumerate(node.map.table) if owner is not None)
            if removed:
                log.info("%d keys of other nodes' slots were left here, and are gone", removed)
        self._recovered = True
        self.look()

    def look(self) -> None:
        """The map has changed: moves that are ours to make are made, those called off end."""
        if not self._recovered:
            return
        for move in self.node.map.moves.values():
            if move.source == self.node.id and move.id not in self._giving:
                if move.aborting:
                    state = RolledBack(_facts(move), "it was called off")
                    self._spawn(
                        move.id, self._settle(Mover(self.node, Prepared(state.facts), self._write), state)
                    )
                else:
                    attempt = self._attempts.get(move.id, 0) + 1
                    self._give(Prepared(replace(_facts(move), attempt=attempt)))
            if move.aborting and move.id in self._movers:
                self._movers[move.id].aborted = "it was called off"
        for id in [id for id in self._taking if id not in self.node.map.moves]:
            self.node._spawn(self._end_taking(id))

    async def clear(self, slots: Iterable[int]) -> int:
        """Takes the keys of slots out of the store that are neither ours nor on their way here: since this
        takes a while, they may have come back meanwhile, and nobody lets them in before it has ended."""
        async with self._clearing:
            table, taking = self.node.map.table, [receiver.slots for receiver in self._taking.values()]
            gone = [
                slot
                for slot in slots
                if table[slot] != self.node.id and not any(slot in taken for taken in taking)
            ]
            return await sweep(self.node.server, gone) if gone else 0

    # Giving

    def _give(self, state: Prepared) -> None:
        self._spawn(state.facts.migration, self._run(state))

    def _spawn(self, migration: str, work: Any) -> None:
        task = self.node._spawn(work)
        self._giving[migration] = task
        task.add_done_callback(lambda _: self._giving.pop(migration, None))

    async def _run(self, state: Prepared) -> None:
        node = self.node
        while True:
            mover = Mover(node, state, self._write)
            self._movers[state.facts.migration] = mover
            try:
                end: Moved | RolledBack = await mover.run()
            except Aborted as error:
                return await self._settle(mover, RolledBack(mover.facts, str(error)))
            except (VerbenaError, OSError, ValueError, asyncio.TimeoutError) as error:
                why = str(getattr(error, "detail", "") or error) or type(error).__name__
                end = RolledBack(mover.facts, why)
            self._attempts[mover.facts.migration] = mover.facts.attempt
            if isinstance(end, Moved):
                return await self._settle(mover, end)
            log.warning("move %s, attempt %d: %s", mover.facts.migration, mover.facts.attempt, end.why)
            again = Prepared(mover.facts).again(node.settings.limits)
            if isinstance(again, RolledBack) or mover.facts.migration not in node.map.moves:
                return await self._settle(mover, end)
            await mover.call_off()
            await asyncio.sleep(_PAUSE_S)
            state = again

    async def _settle(self, mover: Mover, end: State) -> None:
        """To the very end, whatever it is: then the checkpoint is not needed any more."""
        node, migration = self.node, mover.facts.migration
        if isinstance(end, Moved):
            end = await mover.finish(end)
        else:
            mover.state = end
            await asyncio.to_thread(self.checkpoints.write, end)
            await mover.call_off()
            await node.change(lambda map: map.abort_move(migration) if migration in map.moves else map)
        self._movers.pop(migration, None)
        self._attempts.pop(migration, None)
        self._ended[migration] = self._describe(mover, end)
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        await asyncio.to_thread(self.checkpoints.remove, migration)
        log.info("move %s of slots %s: %s", migration, mover.facts.slots, end.phase.name.lower())

    def _write(self, state: State, sync: bool) -> None:
        self.checkpoints.write(state, sync=sync)

    # Taking

    async def serve(self, message: Envelope) -> bytes:
        """What a source asks of a target. ValueError or VerbenaError: it is refused."""
        migration = message.migration.hex()
        if message.kind is Kind.STATUS:
            return json.dumps(self.status()).encode()
        if message.kind is Kind.OFFER:
            return await self._offered(migration, message)
        if message.kind is Kind.ABORT:
            await self.node.refresh()  # what is here may be our own by now
            await self._end_taking(migration)
            return b""
        if message.kind is Kind.OWN:
            await self.node.refresh()
            return b""
        found = self._taking.get(migration)
        if found is None:
            raise no_such_move()
        return await found.serve(message)

    async def _offered(self, migration: str, message: Envelope) -> bytes:
        asked = json.loads(message.payload)
        slots, attempt = SlotRange.parse(str(asked["slots"])), int(asked["attempt"])
        map = await self.node.refresh()
        move = map.moves.get(migration)
        if move is None or move.slots != slots or move.target != self.node.id:
            raise ValueError("the map knows no such move")
        if move.source != message.source.hex():
            raise ValueError("the slots are another node's to give")
        former = self._taking.get(migration)
        if former is not None:
            if attempt <= former.attempt:
                return json.dumps({"taken": former.attempt}).encode()
            await former.close()
        async with self._clearing:
            facts = Facts(migration, slots, move.source, move.target, attempt)
            receiver = Receiver(self.node.server, self.node.peers.node, self._landings, facts)
            self._taking[migration] = receiver
            windows = await receiver.open(
                windows=int(asked["windows"]),
                window_bytes=int(asked["window_bytes"]),
                nbytes=int(asked.get("bytes", 0)),
            )
        return json.dumps({"windows": windows}).encode()

    async def _end_taking(self, migration: str) -> None:
        """What was applied goes, unless it has become ours."""
        receiver = self._taking.pop(migration, None)
        if receiver is not None:
            await receiver.close()
            await self.clear(receiver.slots)

    # What is going on

    def status(self) -> list[dict[str, Any]]:
        """Moves that this node makes or has made, as the command line shows them."""
        return [
            *self._ended.values(),
            *(self._describe(mover, mover.state) for mover in self._movers.values()),
        ]

    def _describe(self, mover: Mover, state: State) -> dict[str, Any]:
        facts, bulk = mover.facts, mover.bulk
        found: dict[str, Any] = {
            "id": facts.migration,
            "slots": str(facts.slots),
            "source": facts.source,
            "target": facts.target,
            "attempt": facts.attempt,
            "phase": state.phase.name.lower(),
            "transport": bulk.state.value,
            "wire": mover.wire,
            "bytes_transferred": bulk.rdma.bytes_transferred,
            "sends_completed": bulk.rdma.sends_completed,
            "fallback_bytes": bulk.fallback.bytes_transferred,
            "fallback_sends": bulk.fallback.sends_completed,
            "copy_s": round(mover.copy_s, 6),
            "at": time.time(),
        }
        if isinstance(state, BaseCopy):
            found["acknowledged"] = state.acknowledged
            found["fraction"] = mover.fraction
        if isinstance(state, CatchUp):
            found["behind"] = state.behind
        if isinstance(state, Moved | Done | RolledBack):
            found["pause_ms"] = round(state.pause_s * 1000, 3)
            found["pause_parts_ms"] = {
                name: round(seconds * 1000, 3) for name, seconds in mover.pause_parts.items()
            }
        if isinstance(state, RolledBack):
            found["why"] = state.why
        return found


def _facts(move: Move) -> Facts:
    return Facts(move.id, move.slots, move.source, move.target)
