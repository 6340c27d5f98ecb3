"""A server for examples/session_client.py: answers calls and publishes memory.  python session_server.py
[ADDRESS]"""

import asyncio
import sys

import verbena
from verbena.verbs import Access


async def shout(request: verbena.Request) -> bytes:
    return request.payload.upper()


async def main(address: str) -> None:
    async with verbena.listen(address, handlers={"shout": shout}) as listener:
        listener.publish("block", listener.node.allocate(64 << 20), access=Access.ALL)
        print("listening at", listener.address, flush=True)
        await listener.serve_forever()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7471"))
