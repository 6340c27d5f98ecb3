"""What do thousands of sessions cost: to open and close, to call, in descriptors and in memory?"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import verbena
from bench.figure import Figure, program
from bench.processes import resident_bytes
from verbena.transport import Session, Settings

SESSIONS = 5000
AT_ONCE = 1000  # opened and closed at once
BATCH = 250  # opened at once on the way to SESSIONS
ROUNDS = 3
LIMITS = Settings(max_connections=2 * SESSIONS)
WIRES = ("iwarp", "shm")
DESCRIPTORS = {"iwarp": 1.0, "shm": 0.0}  # of a session, at most
KIB = 60

SERVER = """
import asyncio, sys
import verbena
from verbena.transport import Settings

async def main():
    chosen = Settings(max_connections=int(sys.argv[1]))
    handlers = {"echo": lambda request: request.payload}
    async with verbena.listen("127.0.0.1:0", handlers=handlers, config=chosen) as listener:
        print(listener.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def measure(options: argparse.Namespace) -> list[Figure]:
    command = [sys.executable, "-c", SERVER, str(2 * SESSIONS)]
    figures = []
    for wire in WIRES:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            figures += asyncio.run(_scale(address, wire, server.pid))
            server.stdin.close()
    return figures


async def _scale(address: str, wire: str, server: int) -> list[Figure]:
    async with verbena.connect(address, wire=wire, config=LIMITS) as first:  # what all sessions share
        await first.call("echo", b"x")
        opened = [await _open_and_close(address, wire) for _ in range(ROUNDS)]
        before = [_descriptors(pid) for pid in (os.getpid(), server)]
        resident = [resident_bytes(pid) for pid in (os.getpid(), server)]
        sessions: list[Session] = []
        while len(sessions) < SESSIONS:
            sessions += await _open(address, wire, BATCH)
        calls = [await _call_all(sessions) for _ in range(ROUNDS)]
        own = [_descriptors(pid) for pid in (os.getpid(), server)]
        used = [resident_bytes(pid) for pid in (os.getpid(), server)]
        await asyncio.sleep(2 * LIMITS.peer_timeout_ms / 1000)
        replaced = sum(session.links - 1 for session in sessions)
        await asyncio.gather(*(session.close() for session in sessions))
    descriptors = max((a - b) / SESSIONS for a, b in zip(own, before, strict=True))
    kib = max((a - b) / SESSIONS / 1024 for a, b in zip(used, resident, strict=True))
    took, call = statistics.median(opened), statistics.median(calls)
    most = DESCRIPTORS[wire]
    all_of_them = f"{SESSIONS:,} sessions"
    return [
        _figure(f"open and close {AT_ONCE:,} sessions at once, {wire}", f"{took:.1f} s", "≤ 5 s", took <= 5),
        _figure(f"a call on each of {all_of_them}, {wire}", f"{call:.2f} s", "≤ 1 s", call <= 1),
        _figure(f"links that {all_of_them} lost, {wire}", str(replaced), "0", replaced == 0),
        # The completion queues, one for fifteen sessions, have descriptors too.
        _figure(
            f"descriptors of a session, {wire}",
            f"{descriptors:.2f}",
            f"≤ {most:.0f}",
            round(descriptors, 1) <= most + 0.1,
        ),
        _figure(f"memory of a session, {wire}", f"{kib:.0f} KiB", f"≤ {KIB} KiB", kib <= KIB),
    ]


def _figure(name: str, measured: str, bound: str, passed: bool) -> Figure:
    return Figure(name, measured, "–", "–", bound, passed)


async def _open(address: str, wire: str, count: int) -> list[Session]:
    connecting = (verbena.connect(address, wire=wire, config=LIMITS) for _ in range(count))
    return list(await asyncio.gather(*connecting))


async def _open_and_close(address: str, wire: str) -> float:
    began = time.perf_counter()
    sessions = await _open(address, wire, AT_ONCE)
    await asyncio.gather(*(session.close() for session in sessions))
    return time.perf_counter() - began


async def _call_all(sessions: list[Session]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(session.call("echo", b"x") for session in sessions))
    return time.perf_counter() - began


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


if __name__ == "__main__":
    program(measure, description=__doc__.splitlines()[0])
