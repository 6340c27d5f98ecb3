"""A server for examples/session_client.py: answers calls and exposes memory.  python session_server.py
[ADDRESS]"""

import asyncio
import sys

import verbena


async def main(address: str) -> None:
    async def shout(request: verbena.Request) -> bytes:
        return request.payload.upper()

    async def borrow(request: verbena.Request) -> bytes:
        return region.remote.to_bytes()  # the address and key that the peer needs

    handlers = {"shout": shout, "borrow": borrow}
    async with await verbena.listen(address, handlers=handlers) as listener:
        region = listener.node.allocate(64 << 20)
        print("listening at", listener.address, flush=True)
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7471"))
