"""The moves that a node takes part in. For now: at the start, keys that belong to other nodes go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.shards.checkpoint import Checkpoints
from verbena.shards.envelope import Envelope

if TYPE_CHECKING:
    from verbena.kv.cluster.node import ClusterNode
    from verbena.kv.server import Server

log = logging.getLogger("verbena.kv.cluster")


class Moves:
    def __init__(self, node: ClusterNode, checkpoints: Checkpoints) -> None:
        self.node = node
        self.checkpoints = checkpoints

    async def recover(self) -> None:
        node = self.node
        if node.id in node.map.replicas:
            return
        others = [slot for slot, owner in enumerate(node.map.table) if owner not in (None, node.id)]
        removed = await sweep(node.server, others) if others else 0
        if removed:
            log.info("%d keys of other nodes' slots were left here, and are gone", removed)

    def look(self) -> None: ...

    async def serve(self, message: Envelope) -> bytes:
        raise ValueError(f"{message.kind.name} is not known here")


async def sweep(server: Server, slots: Iterable[int]) -> int:
    """Takes the keys of slots out of the store, a millisecond at a time."""
    work = _native.kv.SlotSweep(server.engine, list(slots))
    done = False
    while not done:
        done = await asyncio.to_thread(work.work, 0.001)
        await asyncio.sleep(0 if done else 0.001)
    return work.removed
