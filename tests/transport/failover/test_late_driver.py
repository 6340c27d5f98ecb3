"""A node that is late, because the machine is busy or its process was stopped, does not take its own lateness
for the silence of its peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

STOPPED_S = 2.5
PEER_TIMEOUT_MS = 1000

PROGRAM = f"""
import asyncio, sys
import verbena
from verbena.transport import Settings

async def main():
    chosen = Settings(peer_timeout_ms={PEER_TIMEOUT_MS}, heartbeat_interval_ms=200)
    handlers = {{"echo": lambda request: request.payload}}
    async with verbena.listen("127.0.0.1:0", handlers=handlers, config=chosen) as listener:
        async with verbena.connect(listener.address, wire=sys.argv[1], config=chosen) as session:
            await session.call("echo", b"before")
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await asyncio.sleep(0.5)  # time to give the link up
            await session.call("echo", b"after")
            print("links", session.links, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_a_stopped_process_keeps_its_links(wire: str) -> None:
    """Both ends are in the process that stops for longer than the peer timeout: nobody was silent."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, wire], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)  # the rule is about real time
        os.kill(process.pid, signal.SIGCONT)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "links 1\n"
    assert process.returncode == 0
