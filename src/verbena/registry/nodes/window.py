"""Memory that peers write to: slots of one registered stretch, each lent to one session for one piece.
It is ours again before a byte of it is looked at: whoever could still write could change it in between being
hashed and being stored. A peer that comes late is refused by its dead key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from verbena.registry.nodes.settings import PIECE
from verbena.transport import Node, Region, Session
from verbena.verbs import Access


class Slot:
    """One piece's room."""

    def __init__(self, node: Node, memory: memoryview) -> None:
        self.memory = memory
        self._node = node
        self._region: Region | None = None

    def lend(self, session: Session, length: int = PIECE) -> str:
        """Lets the session's peer write to it; gives what it needs for that."""
        self._region = self._node.expose(self.memory[:length], access=Access.ALL, session=session)
        return self._region.remote.to_bytes().hex()

    async def take_back(self) -> None:
        """Returns when nobody can write to it any more."""
        region, self._region = self._region, None
        if region is not None:
            if self._node.wires.keeping:
                await asyncio.to_thread(region.revoke)  # an RDMA device takes its time
            else:
                region.revoke()


class Window:
    """`size` bytes in slots. Who asks for more waits: that is the credit."""

    def __init__(self, node: Node, size: int) -> None:
        count = max(2, size // PIECE)
        whole = node.allocate(count * PIECE)
        self._memory = memoryview(whole.memory).cast("B")
        whole.revoke()  # the memory stays; slots of it are lent one by one
        slots = [Slot(node, self._memory[i * PIECE : (i + 1) * PIECE]) for i in range(count)]
        self._free: asyncio.LifoQueue[Slot] = asyncio.LifoQueue()  # the warmest first
        for slot in slots:
            self._free.put_nowait(slot)

    @property
    def free(self) -> int:
        return self._free.qsize()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        slot = await self._free.get()
        try:
            yield slot
        finally:
            try:
                await slot.take_back()
            finally:
                self._free.put_nowait(slot)
