"""Sessions, listeners and pools as inherited objects."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import verbena
from support.forks.subject import TIMEOUT_S, Subject
from verbena import sync
from verbena.transport import Settings


def _remote(session: sync.Session, method: str) -> verbena.RemoteRegion:
    return verbena.RemoteRegion.from_bytes(session.call(method))


class BlockingSession(Subject):
    def __init__(self, address: str, wire: str) -> None:
        super().__init__()
        self.address, self.settings = address, Settings(wires=(wire,))
        self.session = session = sync.connect(address, config=self.settings)
        self.pattern, self.counter = _remote(session, "pattern"), _remote(session, "counters")[:8]
        self.added = 0
        self.refused = {
            "call": lambda: session.call("echo", b"child"),
            "read": lambda: session.read(self.pattern[:16]),
            "read, long": lambda: session.read(self.pattern),
            "read_into": lambda: session.read_into(self.pattern[:16], bytearray(16)),
            "read_into, long": lambda: session.read_into(self.pattern, bytearray(self.pattern.length)),
            "write": lambda: session.write(self.pattern[:16], bytes(16)),
            "write, long": lambda: session.write(self.pattern, bytes(self.pattern.length)),
            "compare_swap": lambda: session.compare_swap(self.counter, 0, 1),
            "fetch_add": lambda: session.fetch_add(self.counter, 1),
            "wait_for": lambda: session.wait_for(verbena.SessionState.FAILED),
            "metrics": session.metrics,
            "binding": lambda: session.binding(b"label"),
            "break_link": session.break_link,
            "links": lambda: session.links,
        }
        self.allowed = {"state": self.check_state, "a session of its own": self.open_another}

    def check_state(self) -> None:
        assert self.session.closed
        assert repr(self.session).endswith("of the parent process>")

    def open_another(self) -> None:
        with sync.connect(self.address, config=self.settings) as own:
            assert own.call("echo", b"of the child", timeout_s=TIMEOUT_S) == b"of the child"
            assert own.read(_remote(own, "pattern")[:256]) == bytes(range(256))

    def check(self, number: int) -> None:
        payload = b"parent %d" % number
        assert self.session.call("echo", payload, timeout_s=TIMEOUT_S) == payload
        assert self.session.read(self.pattern[:256]) == bytes(range(256))
        assert len(self.session.read(self.pattern)) == self.pattern.length

    def close(self) -> None:
        self.session.close()


class AsyncSession(Subject):
    """A session of an event loop that drives it. The child uses a loop of its own."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.session = session = self.loop.run_until_complete(self._open(address))

        async def states() -> None:
            async for _ in session.states():
                pass

        async def call() -> bytes:
            return await session.call("echo", b"child")

        async def at_once() -> None:
            await asyncio.gather(*(session.call("echo", b"child") for _ in range(64)))

        async def another() -> None:
            async with verbena.connect(address) as own:
                assert await own.call("echo", b"of the child") == b"of the child"

        self.refused = {
            "call": lambda: asyncio.run(call()),
            "calls at once": lambda: asyncio.run(at_once()),
            "read": lambda: asyncio.run(session.read(self.pattern[:16])),
            "read, long": lambda: asyncio.run(session.read(self.pattern)),
            "read_into": lambda: asyncio.run(session.read_into(self.pattern[:16], bytearray(16))),
            "write": lambda: asyncio.run(session.write(self.pattern[:16], bytes(16))),
            "fetch_add": lambda: asyncio.run(session.fetch_add(self.pattern[:8], 1)),
            "states": lambda: asyncio.run(states()),
        }
        self.allowed = {"a session of its own": lambda: asyncio.run(another())}

    async def _open(self, address: str) -> verbena.Session:
        session = await verbena.connect(address)
        self.pattern = verbena.RemoteRegion.from_bytes(await session.call("pattern"))
        return session

    def check(self, number: int) -> None:
        payload = b"parent %d" % number
        assert self.loop.run_until_complete(self.session.call("echo", payload)) == payload
        assert len(self.loop.run_until_complete(self.session.read(self.pattern))) == self.pattern.length

    def close(self) -> None:
        if self.session._inherited:
            asyncio.run(self.session.close())
        else:
            self.loop.run_until_complete(self.session.close())
            self.loop.close()


class Listening(Subject):
    """A listener, its node and its region, and a client of it."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.listener = listener = sync.listen("127.0.0.1:0", handlers={"echo": lambda one: one.payload})
        self.node = node = listener.node
        self.region = region = node.allocate(4096)
        self.folder = tempfile.mkdtemp()
        self.capture = node.capture(Path(self.folder) / "messages.pcapng")
        self.client = sync.connect(listener.address)
        self.refused = {
            "serve_forever": listener.serve_forever,
            "stop_accepting": listener.stop_accepting,
            "admit_unproved": lambda: listener.admit_unproved(True),
            "expose": lambda: node.expose(bytearray(16)),
            "allocate": lambda: node.allocate(16),
            "snapshot": node.snapshot,
            "serve_metrics": lambda: node.serve_metrics("127.0.0.1:0"),
            "drill": lambda: asyncio.run(node.drill()),
            "capture": lambda: node.capture("/nowhere"),
            "flush": self.capture.flush,
            "remote": lambda: region.remote,
            "connect from the node": lambda: sync.connect(address, node=node),
            "listen at the node": lambda: sync.listen("127.0.0.1:0", node=node),
        }
        self.allowed = {
            "repr": lambda: (repr(listener), repr(node), repr(region)),
            "a listener of its own": self.open_another,
        }

    def open_another(self) -> None:
        with (
            sync.listen("127.0.0.1:0", handlers={"echo": lambda one: one.payload}) as own,
            sync.connect(own.address) as session,
        ):
            assert session.call("echo", b"of the child", timeout_s=TIMEOUT_S) == b"of the child"

    def check(self, number: int) -> None:
        payload = b"parent %d" % number
        assert self.client.call("echo", payload, timeout_s=TIMEOUT_S) == payload
        with sync.connect(self.listener.address) as another:
            assert another.call("echo", payload, timeout_s=TIMEOUT_S) == payload
        assert self.client.read(self.region.remote[:8]) == bytes(8)

    def close(self) -> None:
        self.capture.close()
        self.region.close()
        self.client.close()
        self.listener.close()
        if not self.listener._inherited:
            shutil.rmtree(self.folder, ignore_errors=True)


class Pooling(Subject):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pool = verbena.Pool(max_connections=2)
        self.address = address

        async def borrow() -> None:
            async with self.pool.session(address) as session:
                await session.call("echo", b"child")

        self.refused = {"session": lambda: asyncio.run(borrow())}
        self.allowed = {"stats": self.pool.stats}

    def check(self, number: int) -> None:
        self.loop.run_until_complete(self._call(b"parent %d" % number))

    async def _call(self, payload: bytes) -> None:
        async with self.pool.session(self.address) as session:
            assert await session.call("echo", payload) == payload

    def close(self) -> None:
        if self.pool._inherited:
            asyncio.run(self.pool.close())
        else:
            self.loop.run_until_complete(self.pool.close())
            self.loop.close()
