"""A store in its own process: prints its two ports, and serves until its input ends."""

from __future__ import annotations

import asyncio
import socket
import sys

from verbena import transport
from verbena.kv.frontends.sessions import SessionFrontend
from verbena.kv.server.server import Server


async def main() -> None:
    node = await asyncio.to_thread(transport.Node)
    gateway = SessionFrontend(node)
    server = Server(memory=gateway.memory)
    gateway.open(server)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.setblocking(False)
        server.engine.listen(plain.fileno())
        server.start()
        async with transport.listen("127.0.0.1:0", node=node) as listener:
            print(plain.getsockname()[1], listener.address.rpartition(":")[2], flush=True)
            await asyncio.to_thread(sys.stdin.read)
        server.stop()
    await asyncio.to_thread(node.close)


asyncio.run(main())
