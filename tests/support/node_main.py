"""A node as its own process, for commands that query one: serves an echo and exits when its input ends.
Takes its settings from the environment, as a service does, and prints its address."""

from __future__ import annotations

import asyncio
import sys

import verbena


async def serve() -> None:
    handlers = {"echo": lambda request: request.payload}
    async with verbena.listen("127.0.0.1:0", handlers=handlers) as listener:
        print(listener.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
