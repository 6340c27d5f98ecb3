"""A program at one end of a session, for tests that stop or kill it. `python -m support.session_peer WIRE`
listens and prints its address; with the address of a listener it connects there and prints "connected". It
ends when its input does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import verbena
from verbena.transport import Region, Request, Session, Settings

SLOT_BYTES = 1 << 16
SLOTS = 64


def settings(wire: str) -> Settings:
    return Settings(wires=(wire,), recv_buffer_pool_size=256)


class Peer:
    """The program as a child process; it is killed at the end of the block."""

    def __init__(self, wire: str, address: str = "", *, port: int = 0) -> None:
        root = Path(__file__).parents[1]
        environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.session_peer", wire, address or f"port:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.address = self.read_line()
        assert self.address, "the peer did not start"

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Returns before the process has ended, as kill() does."""
        self.process.kill()

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


# The program


class Program:
    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.farewell = asyncio.Event()

    def region(self, request: Request) -> bytes:
        """Returns a new region of this end, for the session that asks."""
        self.regions.append(request.session.node.allocate(SLOTS * SLOT_BYTES, session=request.session))
        return self.regions[-1].remote.to_bytes()

    async def never(self, request: Request) -> None:
        await asyncio.Event().wait()

    async def last_words(self, request: Request) -> bytes:
        """Answers when the test says so, and ends the process soon afterwards, without closing anything."""
        await self.farewell.wait()
        asyncio.get_running_loop().call_later(0.1, os._exit, 0)
        return b"good-bye"

    def fork(self, request: Request) -> bytes:
        """Leaves a child that holds copies of all descriptors."""
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.read(sys.stdin.fileno(), 1)
            os._exit(0)
        return str(child).encode()

    async def read_input(self, session: Session | None = None) -> None:
        calls = set()
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, _, method = line.strip().partition(" ")
            if command == "farewell":
                self.farewell.set()
            elif command == "call" and session is not None:
                calls.add(asyncio.ensure_future(self.call(session, method)))

    async def call(self, session: Session, method: str) -> None:
        """Prints "called" when the peer runs the handler, then its result."""
        result = asyncio.ensure_future(session.call(method))
        await session.call("echo", b"")
        print("called", flush=True)
        try:
            print(await result, flush=True)
        except verbena.errors.VerbenaError as error:
            print(error.code, flush=True)

    async def run(self, wire: str, where: str) -> None:
        handlers = {
            "echo": lambda request: request.payload,
            "region": self.region,
            "never": self.never,
            "last_words": self.last_words,
            "fork": self.fork,
        }
        if where.startswith("port:"):
            address = f"127.0.0.1:{where.removeprefix('port:')}"
            async with verbena.listen(address, handlers=handlers, config=settings(wire)) as listener:
                print(listener.address, flush=True)
                await self.read_input()
            return
        async with verbena.connect(where, handlers=handlers, config=settings(wire)) as session:
            never = asyncio.ensure_future(session.call("never"))
            print("connected", flush=True)
            await self.read_input(session)
            never.cancel()


if __name__ == "__main__":
    asyncio.run(Program().run(*sys.argv[1:]))
