"""Valkey over RDMA on the wires of this machine: Verbena's server and client, and hostile peers."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from verbena import verbs
from verbena.errors import BrokenLinkError, DeniedError, RejectedError
from verbena.kv.frontends.valkey_rdma import RdmaListener, RdmaSocket, rdma_pool
from verbena.kv.server.server import Server

SCHEMES = {"iwarp": "iwarp", "shm": "shm", "ibv": "rdma"}


@pytest.fixture(params=["iwarp", "shm"])
async def listener(request: pytest.FixtureRequest) -> AsyncIterator[RdmaListener]:
    server = Server()
    server.start()
    listener = RdmaListener(server, request.param, "127.0.0.1:0" if request.param == "iwarp" else "")
    yield listener
    await listener.close()
    server.stop()


def url(listener: RdmaListener) -> str:
    return f"{SCHEMES[listener.wire]}://{listener.address}"


@pytest.mark.parametrize("library", ["valkey", "redis"])
async def test_a_library_works_over_rdma(listener: RdmaListener, library: str) -> None:
    """Commands, pipelines, and values longer than the window, which wraps many times."""
    module = pytest.importorskip(library)

    def use() -> None:
        pool = rdma_pool(url(listener), library=library, protocol=2)
        client: Any = getattr(module, library.capitalize())(connection_pool=pool)
        assert client.ping()
        assert client.set("key", "value")
        assert client.get("key") == b"value"
        with client.pipeline(transaction=False) as pipe:
            for number in range(6000):
                pipe.set(f"key {number}", number)
            assert pipe.execute() == [True] * 6000
        big = bytes(range(256)) * (3 << 12)
        for _ in range(3):
            client.set("big", big)
            assert client.get("big") == big
        pool.disconnect()

    await asyncio.to_thread(use)


async def test_invalidations_arrive_over_valkey_rdma(listener: RdmaListener) -> None:
    """CLIENT TRACKING: own changes after the reply, those of others without a request."""

    def use() -> None:
        tracking, writer = RdmaSocket(url(listener)), RdmaSocket(url(listener))
        for peer in (tracking, writer):
            peer.settimeout(10)
            peer.sendall(b"HELLO 3\r\n")
            assert b"modules" in peer.recv(1000)
        tracking.sendall(b"CLIENT TRACKING on\r\nGET x\r\nSET x 1\r\nGET x\r\n")
        told, heard = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n", b""
        while not heard.endswith(b"$1\r\n1\r\n"):
            heard += tracking.recv(1000)
        assert heard == b"+OK\r\n_\r\n+OK\r\n" + told + b"$1\r\n1\r\n"
        writer.sendall(b"SET x 2\r\n")
        assert writer.recv(100) == b"+OK\r\n"
        assert tracking.recv(1000) == told
        tracking.close()
        writer.close()

    await asyncio.to_thread(use)


async def test_closed_clients_leave_the_list(listener: RdmaListener) -> None:
    def come_and_go() -> None:
        for _ in range(5):
            peer = RdmaSocket(url(listener))
            peer.settimeout(10)
            peer.sendall(b"PING\r\n")
            assert peer.recv(100) == b"+PONG\r\n"
            peer.close()

    await asyncio.to_thread(come_and_go)
    async with asyncio.timeout(10):
        while listener.clients:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def raw_peer(
    listener: RdmaListener,
) -> AsyncIterator[tuple[verbs.QueuePair, Any, tuple[int, int, int]]]:
    """A queue pair that has received the server's window: (address, length, key)."""
    context = verbs.open_device(listener.wire)
    try:
        pd = context.alloc_pd()
        qp = pd.create_qp(context.create_cq(64))
        memory = pd.allocate(1 << 16, access=verbs.Access.ALL)
        await context.connect(qp, listener.address)
        received = await asyncio.wait_for(qp.recv(memory[:32]), 10)
        assert received.byte_count == 32
        code, address, length, key = struct.unpack(">H14xQII", bytes(memoryview(memory)[:32]))
        assert code == 3
        yield qp, memory, (address, length, key)
    finally:
        await asyncio.to_thread(context.close)


async def is_closed(qp: verbs.QueuePair) -> bool:
    async with asyncio.timeout(10):
        while qp.connection.state is verbs.ConnectionState.ESTABLISHED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize(
    "message",
    [
        struct.pack(">H30x", 9),  # unknown opcode
        struct.pack(">H14x", 3),  # too short
        struct.pack(">H14xQII", 3, 0, 0, 0),  # an empty window
    ],
    ids=["opcode", "short", "empty window"],
)
async def test_nonsense_closes_the_connection(listener: RdmaListener, message: bytes) -> None:
    """A SEND that is not a control message closes that connection; the server continues."""
    async with raw_peer(listener) as (qp, memory, _):
        memoryview(memory)[: len(message)] = message
        # the server may close the connection before the completion arrives
        with contextlib.suppress(BrokenLinkError):
            await qp.send(memory[: len(message)])
        assert await is_closed(qp)
    peer = await asyncio.to_thread(RdmaSocket, url(listener))
    await asyncio.to_thread(peer.sendall, b"PING\r\n")
    assert await asyncio.to_thread(peer.recv, 100) == b"+PONG\r\n"
    await asyncio.to_thread(peer.close)


async def test_an_immediate_beyond_the_window_closes_the_connection(listener: RdmaListener) -> None:
    async with raw_peer(listener) as (qp, memory, (address, length, key)):
        memoryview(memory)[:6] = b"PING\r\n"
        with contextlib.suppress(BrokenLinkError):
            await qp.write(memory[:6], verbs.RemoteMemory(address, key, 6), immediate=length + 1)
        assert await is_closed(qp)


async def test_the_key_of_the_window_opens_the_window_only(listener: RdmaListener) -> None:
    """A WRITE that reaches one byte beyond the announced length is refused, and the connection ends."""
    async with raw_peer(listener) as (qp, memory, (address, length, key)):
        beyond = verbs.RemoteMemory(address + length - 8, key, 9)
        with pytest.raises(DeniedError):
            await qp.write(memory[:9], beyond)
        assert await is_closed(qp)


async def test_the_limit_of_clients_holds_for_rdma_clients(listener: RdmaListener) -> None:
    """A connection beyond maxclients is rejected and counted, as over TCP."""
    listener._server.clients.max_clients = 1
    listener._server.clients.update_dispatch()

    def use() -> None:
        first = RdmaSocket(url(listener))
        first.settimeout(10)
        first.sendall(b"PING\r\n")
        assert first.recv(100) == b"+PONG\r\n"
        with pytest.raises(RejectedError):
            RdmaSocket(url(listener))
        first.close()

    await asyncio.to_thread(use)
    assert listener._server.engine.counters()["rejected_connections"] == 1


async def test_clients_that_come_at_once_do_not_exceed_the_limit(
    listener: RdmaListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is checked again when a connection is established: others may have come since its request."""

    def ended(peer: RdmaSocket) -> bool:
        try:
            peer.sendall(b"PING\r\n")
            return peer.recv(100) == b""
        except ConnectionError:
            return True

    class Earlier:
        """The frontend when the second client asked: the first was not admitted yet."""

        admit = listener._frontend.admit
        clients = property(lambda self: listener_frontend.clients)
        close = listener._frontend.close

        def rejection(self, address: str) -> str:
            return ""

    listener_frontend = listener._frontend
    monkeypatch.setattr(listener, "_frontend", Earlier())
    listener._server.clients.max_clients = 1
    listener._server.clients.update_dispatch()

    def use() -> None:
        first, second = RdmaSocket(url(listener)), RdmaSocket(url(listener))
        for peer in (first, second):
            peer.settimeout(10)
        first.sendall(b"PING\r\n")
        assert first.recv(100) == b"+PONG\r\n"
        assert ended(second)
        first.close()
        second.close()

    await asyncio.to_thread(use)
    assert listener._server.engine.counters()["rejected_connections"] == 1
