"""Calls examples/session_server.py, then uses its memory.  python session_client.py [ADDRESS]"""

import asyncio
import os
import sys

import verbena


async def main(address: str) -> None:
    async with await verbena.connect(address) as session:
        print(session)  # shows the wire and the reason for its choice
        print(await session.call("shout", b"hello"))

        remote = verbena.RemoteRegion.from_bytes(await session.call("borrow"))
        data, back = os.urandom(len(remote)), bytearray(len(remote))
        await session.put(data, remote)  # one-sided, in fragments with checksums
        await session.get(remote, back)
        print(f"{len(remote) >> 20} MiB put and get:", "equal" if back == data else "DIFFERENT")

        print("counter:", await session.fetch_add(remote[:8], 1) >= 0)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7471"))
