"""The acceptor: each connection of the shared port gets to the end that serves its protocol, or is closed in
time, whatever others send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.certificates import Authority
from support.leaks import descriptors

from verbena.errors import VerbenaError
from verbena.transport.handshake.tls import client_context, server_context
from verbena.transport.listening.accepting import Acceptor
from verbena.transport.listening.binding import bind

LINK_START = b"MPA ID Req Frame"
TIMEOUT_S = 30.0  # longer than any test: only tests of the deadline reach theirs


class Port:
    """A port with an acceptor, and what became of its connections."""

    def __init__(
        self, *, timeout_s: float = TIMEOUT_S, limit: int = 8, tls: ssl.SSLContext | None = None
    ) -> None:
        self.hellos: asyncio.Queue[tuple[asyncio.StreamReader, float]] = asyncio.Queue()
        self.links: asyncio.Queue[tuple[socket.socket, float]] = asyncio.Queue()
        self.refused: list[tuple[str, str]] = []
        self.serving = 0
        self._end_hellos = asyncio.Event()
        self.acceptor = Acceptor(
            self._serve, tls=tls, timeout_s=timeout_s, max_unfinished=limit, on_refused=self._on_refused
        )
        self.acceptor.take_link = lambda connection, left_s: self.links.put_nowait((connection, left_s))
        self._clients: list[socket.socket] = []

    async def start(self) -> None:
        sockets = await bind("127.0.0.1", 0)
        self.number = sockets[0].getsockname()[1]
        self.acceptor.start(sockets)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left_s: float) -> None:
        self.serving += 1
        try:
            self.hellos.put_nowait((reader, left_s))
            await self._end_hellos.wait()
        finally:
            self.serving -= 1

    def _on_refused(self, error: VerbenaError, peer: str) -> None:
        self.refused.append((error.code, peer))

    def dial(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.number))
        client.settimeout(10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        client.sendall(data)
        return client

    async def next_hello(self, size: int) -> bytes:
        reader, _ = await asyncio.wait_for(self.hellos.get(), 10)
        return await asyncio.wait_for(reader.readexactly(size), 10)

    async def next_link(self) -> bytes:
        connection, left_s = await asyncio.wait_for(self.links.get(), 10)
        assert 0 < left_s <= TIMEOUT_S
        with connection:
            assert not connection.getblocking() or connection.gettimeout() == 0.0
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            return connection.recv(1 << 16)

    async def close(self) -> None:
        self.acceptor.close()
        for client in self._clients:
            client.close()


@pytest.fixture
async def make_port() -> AsyncIterator[Callable[..., Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options: Any) -> Port:
            port = Port(**options)
            await port.start()
            stack.push_async_callback(port.close)
            return port

        yield make


@pytest.fixture
async def port(make_port: Callable[..., Any]) -> Port:
    return await make_port()  # type: ignore[no-any-return]


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


async def is_closed(client: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.to_thread(client.recv, 1) == b""
    return True


# Each protocol to its end


async def test_each_connection_gets_to_the_end_of_its_protocol(port: Port) -> None:
    """With all its bytes: those by which it was recognised are not consumed."""
    port.dial(b"VRBN and so on")
    assert await port.next_hello(14) == b"VRBN and so on"
    port.dial(LINK_START + b"\x40\x01")
    assert await port.next_link() == LINK_START + b"\x40\x01"
    port.dial(b"GET / HTTP/1.1\r\n\r\n")
    assert await port.next_hello(18) == b"GET / HTTP/1.1\r\n\r\n"
    assert port.refused == []


@pytest.mark.parametrize("start", [LINK_START, LINK_START[:10] + b"!!!!!!"])
async def test_bytes_may_come_one_at_a_time(port: Port, start: bytes) -> None:
    """The connection waits for the rest, and other connections do not wait for it."""
    slow = port.dial()
    for byte in start[:-1]:
        slow.sendall(bytes([byte]))
        port.dial(LINK_START + b"quick")
        assert await port.next_link() == LINK_START + b"quick"
    slow.sendall(start[-1:])
    if start == LINK_START:
        assert await port.next_link() == LINK_START
    else:
        assert await port.next_hello(len(start)) == start


@pytest.mark.parametrize("start", [b"", b"M", LINK_START[:15]])
async def test_a_connection_that_ends_undecided_is_for_the_hello(port: Port, start: bytes) -> None:
    """The hello reports that the peer hung up."""
    with port.dial(start) as client:
        client.shutdown(socket.SHUT_WR)
        reader, _ = await asyncio.wait_for(port.hellos.get(), 10)
        assert await reader.read() == start


async def test_without_a_wire_that_shares_the_port_every_connection_is_for_the_hello(port: Port) -> None:
    """At once: no bytes are waited for."""
    port.acceptor.take_link = None
    port.dial()
    await asyncio.wait_for(port.hellos.get(), 10)
    port.dial(LINK_START)
    assert await port.next_hello(16) == LINK_START


async def test_a_connection_that_was_reset_disturbs_nothing(port: Port) -> None:
    client = port.dial(b"M")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
    port.dial(LINK_START)
    assert await port.next_link() == LINK_START


async def test_inside_tls_the_offered_protocol_decides(
    make_port: Callable[..., Any], authority: Authority
) -> None:
    """A link is handed over before its TLS handshake; a hello is served after it."""
    pair = authority.issue("port")
    tls = server_context(certificate=pair.certificate, key=pair.key, ca=authority.ca)
    port = await make_port(tls=tls)
    hello = client_context(ca=authority.ca)
    hello.load_cert_chain(pair.certificate, pair.key)
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port.number, ssl=hello, server_hostname="localhost"
    )
    writer.write(b"inside TLS")
    assert await port.next_hello(10) == b"inside TLS"
    writer.close()

    link = client_context(ca=authority.ca)
    link.set_alpn_protocols(["verbena-iwarp/1"])
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        link.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    flight = out.read()
    client = port.dial(flight[:50])
    client.sendall(flight[50:])
    assert await port.next_link() == flight


# Deadlines


@pytest.mark.parametrize("start", [b"", b"M", LINK_START[:15], b"\x16\x03\x01\x02\x00"])
async def test_an_undecided_connection_is_closed_at_its_deadline(
    make_port: Callable[..., Any], start: bytes
) -> None:
    """Counted from accept, and reported with the peer's address."""
    port = await make_port(timeout_s=0.2)
    started = time.monotonic()
    client = port.dial(start)
    assert await is_closed(client)
    assert 0.1 < time.monotonic() - started < 5
    await until(lambda: bool(port.refused))
    own = client.getsockname()
    assert port.refused == [("connect_timeout", f"{own[0]}:{own[1]}")]


async def test_bytes_do_not_postpone_the_deadline(make_port: Callable[..., Any]) -> None:
    port = await make_port(timeout_s=0.3)
    client = port.dial()
    closed = asyncio.ensure_future(is_closed(client))
    for byte in LINK_START[:-1]:
        with contextlib.suppress(OSError):
            client.sendall(bytes([byte]))
        await asyncio.wait({closed}, timeout=0.05)
    assert closed.done()
    assert await closed


async def test_a_hello_has_the_time_that_is_left(make_port: Callable[..., Any]) -> None:
    port = await make_port(timeout_s=5.0)
    client = port.dial(b"\x16")
    await until(lambda: len(port.acceptor._undecided) == 1)
    waited_s = 0.05
    await asyncio.sleep(waited_s)  # time passes for this connection
    client.sendall(b"!!!!")
    _, left_s = await asyncio.wait_for(port.hellos.get(), 10)
    assert 0 < left_s <= 5.0 - waited_s


# Floods


async def test_a_flood_of_silent_connections_does_not_lock_out_others(make_port: Callable[..., Any]) -> None:
    """The oldest silent ones make room; links, hellos and what is being served stay."""
    port = await make_port(limit=8)
    port.dial(b"VRBN")
    await port.next_hello(4)
    silent = []
    for number in range(40):
        silent.append(port.dial())
        if number % 10 == 0:
            port.dial(LINK_START)
            assert await port.next_link() == LINK_START
            port.dial(b"V")
            assert await port.next_hello(1) == b"V"
    await until(lambda: len(port.acceptor._undecided) <= 8 and len(port.refused) >= 32)
    assert {code for code, _ in port.refused} == {"limit_exceeded"}
    assert await is_closed(silent[0])
    assert port.serving == 5, "hellos that were being served stayed"
    silent[-1].sendall(LINK_START)
    assert await port.next_link() == LINK_START


async def test_a_flood_of_hellos_does_not_lock_out_others(make_port: Callable[..., Any]) -> None:
    """The oldest unfinished hellos make room, and a new one is still served; links and undecided connections
    are not counted."""
    port = await make_port(limit=8)
    undecided = port.dial(b"M")
    await until(lambda: len(port.acceptor._undecided) == 1)
    first = port.dial(b"VRBN")
    await port.next_hello(4)
    for _ in range(40):
        port.dial(b"VRBN")
        await port.next_hello(4)
    await until(lambda: port.serving == 8)
    assert await is_closed(first)
    assert port.refused[0] == ("limit_exceeded", "{}:{}".format(*first.getsockname()))
    undecided.sendall(LINK_START[1:])
    assert await port.next_link() == LINK_START


async def test_closing_ends_everything_and_leaks_nothing(make_port: Callable[..., Any]) -> None:
    before = descriptors()
    port = await make_port()
    clients = [port.dial(start) for start in (b"", b"M", b"VRBN", b"\x16\x03")]
    await until(lambda: port.serving == 1 and len(port.acceptor._undecided) == 3)
    port.acceptor.close()
    for client in clients:
        await is_closed(client)
    await until(lambda: port.serving == 0)
    with pytest.raises(ConnectionRefusedError):
        port.dial()
    await port.close()
    port.hellos = asyncio.Queue()  # the streams
    await until(lambda: descriptors() <= before)
