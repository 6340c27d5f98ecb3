"""A memory node on its own thread, for blocking clients in the same process."""

from __future__ import annotations

import asyncio
import threading

import verbena
from verbena import far
from verbena.transport import Listener, Node, Settings

SECRET = "correct horse battery staple"
SIZE = 64 << 20


class Serving:
    """A memory node that serves until stop()."""

    def __init__(self, size: int = SIZE) -> None:
        self.memory: far.MemoryNode
        self.listener: Listener
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._serve(started, size))
        )
        self._thread.start()
        assert started.wait(30)

    @property
    def address(self) -> str:
        return self.listener.address

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self, started: threading.Event, size: int) -> None:
        node = Node(Settings(secret=SECRET.encode()), by_loop=True)
        self.memory = far.MemoryNode(node, size)
        self.listener = await verbena.listen("127.0.0.1:0", handlers=self.memory.handlers, node=node)
        started.set()
        await self._stopped.wait()
        await self.listener.close()
        await self.memory.close()
        await asyncio.to_thread(node.close)
