"""A program that forks inside its running event loop, which drives its sessions and listener.
usage: in_loop.py ADDRESS"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import traceback

import pytest

import verbena
from verbena import errors

LIMIT_S = 1.0


async def hammer(session: verbena.Session, stop: asyncio.Event) -> int:
    count = 0
    while not stop.is_set():
        count += 1
        payload = b"parent %x %d" % (session.id, count)
        assert await session.call("echo", payload) == payload
    return count


def use(address: str, inherited: list[verbena.Session]) -> None:
    for session in inherited:
        began = time.monotonic()
        with pytest.raises(errors.ClosedError, match=r"\[forked\]"):
            asyncio.run(session.call("echo", b"child"))
        asyncio.run(session.close())
        assert time.monotonic() - began < LIMIT_S

    async def own() -> None:
        async with verbena.connect(address) as another:
            assert await another.call("echo", b"of the child") == b"of the child"

    asyncio.run(own())
    gc.collect()


async def main(address: str) -> None:
    stop = asyncio.Event()
    async with (
        verbena.listen("127.0.0.1:0", handlers={"echo": lambda one: one.payload}) as listener,
        verbena.connect(listener.address) as first,
        verbena.connect(address) as second,
    ):
        tasks = [asyncio.create_task(hammer(one, stop)) for one in (first, second)]
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 0
                try:
                    use(address, [first, second])
                except BaseException:
                    traceback.print_exc()
                    status = 1
                os._exit(status)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
        stop.set()
        print(sum(await asyncio.gather(*tasks)), "answers")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
