"""Memory that peers write to: slots of one allocation, each lent to one session for one piece. Access is
revoked before the bytes are read, so that a peer cannot change them between hashing and storing. A late WRITE
fails because its key is invalid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from verbena.registry.nodes.settings import PIECE
from verbena.transport import Node, Region, Session
from verbena.verbs import Access


class Slot:
    """Memory for one piece."""

    def __init__(self, node: Node, memory: memoryview) -> None:
        self.memory = memory
        self._node = node
        self._region: Region | None = None

    def lend(self, session: Session, length: int = PIECE) -> str:
        """Lets the session's peer write to the slot; returns the encoded remote region for the request."""
        self._region = self._node.expose(self.memory[:length], access=Access.ALL, session=session)
        return self._region.remote.to_bytes().hex()

    async def take_back(self) -> None:
        """Revokes the peer's access; after it returns, no peer can write to the slot."""
        region, self._region = self._region, None
        if region is not None:
            if self._node.wires.keeping:
                await asyncio.to_thread(region.close)  # revoking on an RDMA device takes long
            else:
                region.close()


class Window:
    """`size` bytes in slots. `slot()` waits until one is free, which limits the pieces in transit."""

    def __init__(self, node: Node, size: int) -> None:
        count = max(2, size // PIECE)
        whole = node.allocate(count * PIECE)
        self._memory = memoryview(whole)
        whole.close()  # the memory stays allocated; slots are exposed one by one
        slots = [Slot(node, self._memory[i * PIECE : (i + 1) * PIECE]) for i in range(count)]
        self._free: asyncio.LifoQueue[Slot] = asyncio.LifoQueue()  # most recently used first, for warm caches
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
