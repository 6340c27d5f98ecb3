"""Calls examples/session_server.py, then uses its memory.  python session_client.py [ADDRESS]"""

import asyncio
import os
import sys

import verbena


async def main(address: str) -> None:
    async with verbena.connect(address) as session:
        print(session)  # shows the wire and the reason for its choice
        print(await session.call("shout", b"hello"))

        block = await session.region("block")
        data = os.urandom(len(block))
        await session.write(block, data)  # one-sided, in fragments with checksums
        same = await session.read(block) == data
        print(f"{len(block) >> 20} MiB written and read:", "equal" if same else "DIFFERENT")

        print("counter:", await session.fetch_add(block[:8], 1) >= 0)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7471"))
