"""The server of the session benchmarks: echoes, natively and in Python, and exposes memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import verbena
from verbena.transport import Request, Settings


async def main(native: bool, region_bytes: int) -> None:
    async def echo(request: Request) -> bytes:
        return request.payload

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(await reader.readexactly(64))

    listener = await verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=Settings(), native=native)
    streams = await asyncio.start_server(stream, "127.0.0.1", 0)
    region = listener.node.allocate(region_bytes)
    port = streams.sockets[0].getsockname()[1]
    print(listener.address, region.remote.to_bytes().hex(), port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    streams.close()
    await listener.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] == "native", int(sys.argv[2])))
