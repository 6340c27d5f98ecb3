"""A session under a wire that drops, delays, duplicates, corrupts, fails and breaks, with everything checked.

    python tests/transport/soak.py [--seconds 600] [--wire iwarp] [--seed 1]

Two processes: the server executes and counts, the client sends and keeps its own account. Afterwards every
call must have been executed exactly once and answered correctly, all sums must agree, every transfer be
whole.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import stat
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import verbena
from verbena.errors import WcStatus
from verbena.testing import FaultPlan, faulty
from verbena.transport import RemoteRegion, Request, Session, SessionState, Settings
from verbena.verbs import Opcode

SECRET = "a secret for the soak test"
BULK_BYTES = 6 << 20
WORKERS = 8
FAULTS = ("drop", "delay", "duplicate", "corrupt", "fail", "break_link")


@dataclass
class Account:
    """What the client did, and the results."""

    calls: int = 0
    sums: int = 0
    transfers: int = 0
    breaks: int = 0
    resumed_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


async def serve() -> None:
    executed: Counter[bytes] = Counter()

    async def count(request: Request) -> bytes:
        executed[request.payload[:8]] += 1
        if request.payload[0] % 16 == 0:
            await asyncio.sleep(0.001)
        return request.payload

    async def report(request: Request) -> bytes:
        often = [key.hex() for key, times in executed.items() if times != 1]
        words = memoryview(region)[:8]
        total = int.from_bytes(words, "little")
        return json.dumps({"executed": len(executed), "not_once": often, "total": total}).encode()

    handlers: dict[str, Any] = {"count": count, "report": report}
    async with verbena.listen("127.0.0.1:0", handlers=handlers, secret=SECRET) as listener:
        region = listener.node.allocate(4096 + WORKERS * BULK_BYTES)
        print(listener.address, region.remote.to_bytes().hex(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def call_loop(session: Session, account: Account, stop: asyncio.Event, worker: int) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        key = os.urandom(1) + worker.to_bytes(1, "big") + number.to_bytes(6, "big")
        payload = key + os.urandom(random.choice((0, 50, 500, 4000, 50_000)))
        if await session.call("count", payload) != payload:
            account.wrong.append(f"call {key.hex()} was answered wrong")
        account.calls += 1


async def sum_loop(session: Session, account: Account, stop: asyncio.Event, word: RemoteRegion) -> None:
    while not stop.is_set():
        await session.fetch_add(word, 1)
        account.sums += 1


async def bulk_loop(session: Session, account: Account, stop: asyncio.Event, area: RemoteRegion) -> None:
    back = bytearray(len(area))
    while not stop.is_set():
        data = os.urandom(1 << 16) * (len(area) >> 16)
        await session.write(area, data)
        await session.read_into(area, back)
        if back != data:
            account.wrong.append("a transfer came back wrong")
        account.transfers += 1


async def chaos(
    session: Session, account: Account, stop: asyncio.Event, plan: FaultPlan, dice: random.Random, breaks: int
) -> None:
    """Injects faults of every kind until `stop` is set or the link broke `breaks` times; measures each
    resume."""
    while not stop.is_set() and (not breaks or account.breaks < breaks):
        await asyncio.sleep(dice.uniform(0, 0.02))
        links, before = session._native.links, time.monotonic()
        kind = dice.choice((*FAULTS, "socket", "drill"))
        if kind == "socket":
            kill_socket(dice)
        elif kind == "drill":
            session.break_link()
        else:
            opcode = dice.choice((None, Opcode.SEND, Opcode.WRITE, Opcode.READ))
            status = dice.choice((WcStatus.RETRY_EXC_ERR, WcStatus.RNR_RETRY_EXC_ERR, WcStatus.GENERAL_ERR))
            delay_us = dice.uniform(0, 5000) if kind == "delay" else 0
            plan.add(kind, opcode=opcode, nth=dice.randint(1, 5), status=status, delay_us=delay_us)  # type: ignore[arg-type]
        for _ in range(200):
            if session._native.links != links or stop.is_set():
                break
            await asyncio.sleep(0.0005)
        if session._native.links != links:
            account.breaks += 1
            account.resumed_ms.append((time.monotonic() - before) * 1000)
    plan.clear()


def kill_socket(dice: random.Random) -> None:
    """Shuts down a TCP connection of this process, as a cut cable would: one of the iwarp wire's, if there is
    any."""
    found = [int(name) for name in os.listdir("/proc/self/fd") if is_connection(int(name))]
    if found:
        copy = os.dup(dice.choice(found))
        with socket.socket(fileno=copy) as victim, contextlib.suppress(OSError):
            victim.shutdown(socket.SHUT_RDWR)


def is_connection(descriptor: int) -> bool:
    """True for a connected TCP socket."""
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISSOCK(mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.getpeername()
            return copy.family == socket.AF_INET and copy.type == socket.SOCK_STREAM
    except OSError:
        return False


async def soak(seconds: float, wire: str | None, seed: int, breaks: int = 0) -> Account:
    """Runs everything and returns the account, with all errors in `wrong`."""
    dice = random.Random(seed)
    plan, account, stop = FaultPlan(), Account(), asyncio.Event()
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        address, described = (await asyncio.to_thread(server.stdout.readline)).split()
        remote = RemoteRegion.from_bytes(bytes.fromhex(described))
        settings = Settings(open_device=lambda name: faulty(name, plan), retry_delay_ms=20)
        async with verbena.connect(address, secret=SECRET, wire=wire, config=settings) as session:
            work = [call_loop(session, account, stop, worker) for worker in range(WORKERS)]
            work.append(sum_loop(session, account, stop, remote[:8]))
            work.append(bulk_loop(session, account, stop, remote[4096 : 4096 + BULK_BYTES]))
            tasks = [asyncio.ensure_future(one) for one in work]
            trouble = asyncio.ensure_future(chaos(session, account, stop, plan, dice, breaks))
            await asyncio.wait([trouble, *tasks], timeout=seconds, return_when="FIRST_COMPLETED")
            stop.set()
            plan.clear()
            for outcome in await asyncio.gather(trouble, *tasks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    account.wrong.append(f"{type(outcome).__name__}: {outcome}")
            if session.state is SessionState.FAILED:
                account.wrong.append(repr(session))
                return account
            told = json.loads(await session.call("report", timeout_s=30))
            check(account, told)
    finally:
        server.stdin.close()
        server.wait(timeout=30)
        server.stdout.close()
    return account


def check(account: Account, told: dict[str, Any]) -> None:
    if told["not_once"]:
        account.wrong.append(f"{len(told['not_once'])} calls were not executed once")
    if told["executed"] != account.calls:
        account.wrong.append(f"{account.calls} calls were answered, {told['executed']} executed")
    if told["total"] != account.sums:
        account.wrong.append(f"{account.sums} additions, but the sum is {told['total']}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--wire", help="this one only; else whatever works")
    parser.add_argument("--seed", type=int, default=1, help="of the faults (1)")
    parser.add_argument("--breaks", type=int, default=0, help="stop after so many breaks")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return 0
    account = asyncio.run(soak(options.seconds, options.wire, options.seed, options.breaks))
    resumed = sorted(account.resumed_ms) or [0.0]
    print(f"{account.calls} calls, {account.sums} additions, {account.transfers} transfers each way")
    print(f"{account.breaks} breaks; back after {statistics.median(resumed):.1f} ms (median), ", end="")
    print(f"{resumed[-1]:.1f} ms (longest)")
    for line in account.wrong:
        print(f"WRONG: {line}")
    return int(bool(account.wrong))


if __name__ == "__main__":
    sys.exit(main())
