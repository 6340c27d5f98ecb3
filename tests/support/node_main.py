"""A node in a process of its own, for commands that ask one: serves an echo, leaves when its input ends.
Its settings come from the environment, as a service's do; it prints its address."""

from __future__ import annotations

import asyncio
import sys

import verbena


async def serve() -> None:
    handlers = {"echo": lambda request: request.payload}
    async with await verbena.listen("127.0.0.1:0", handlers=handlers) as listener:
        print(listener.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
