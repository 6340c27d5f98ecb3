"""The server process of a standalone drill: counts calls and exposes a block; exits when its input ends."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace

from verbena.cli.drill.standalone import BLOCK_BYTES
from verbena.config import load
from verbena.transport import Request, listen
from verbena.transport.configured import settings_from
from verbena.verbs import Access


async def serve() -> None:
    asked = json.loads(await asyncio.to_thread(sys.stdin.readline))
    settings = replace(
        settings_from(load(asked["config"], flags=asked["flags"])),
        secret=asked["secret"].encode(),
        node_name="",
        metrics_listen="",
        allow_drill=True,
    )
    seen: Counter[bytes] = Counter()

    def note(request: Request) -> bytes:
        seen[request.payload] += 1
        return bytes(request.payload)

    def count(request: Request) -> bytes:
        return json.dumps({"calls": seen.total(), "distinct": len(seen)}).encode()

    handlers = {"note": note, "count": count}
    async with listen("127.0.0.1:0", handlers=handlers, config=settings) as listener:
        with listener.node.allocate(BLOCK_BYTES, access=Access.ALL) as region:
            answer = {"address": listener.address, "region": region.remote.to_bytes().hex()}
            print(json.dumps(answer), flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
