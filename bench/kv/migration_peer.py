"""The peer process of migration.py: exposes a window on one wire until its input ends."""

from __future__ import annotations

import asyncio
import sys

from bench.kv.migration import settings
from verbena import transport


async def main(wire: str, *certificates: str) -> None:
    files = (certificates[0], certificates[1], certificates[2])
    async with transport.listen("127.0.0.1:0", config=settings(wire, files), native=True) as listener:
        window = listener.node.allocate(1 << 16)
        print(listener.address, window.remote.to_bytes().hex(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
