"""One port for each node: handshakes and links of the wires iwarp and quic share it, or use the data port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.own_ports import own_ports
from support.ports import free_port

import verbena
from verbena import errors, verbs
from verbena.transport import Listener, Settings
from verbena.transport.listening import wire_listeners as listening

SECRET = b"correct horse battery staple"
SETTINGS = Settings(wires=("iwarp", "quic"), recv_buffer_pool_size=256, secret=SECRET)
LINK_START = b"MPA ID Req Frame"


@pytest.fixture(autouse=True)
def certificates(tls_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For quic. The wire iwarp is not encrypted, unless a test asks for it."""
    info = next(info for info in verbs.providers() if info.name == "quic")
    for variable, value in tls_environment.items():
        if variable.startswith("VERBENA_QUIC"):
            monkeypatch.setenv(variable, value)
    if not info.available:
        pytest.skip(info.reason)


@pytest.fixture
def encrypted(tls_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in tls_environment.items():
        monkeypatch.setenv(variable, value)


async def listen(address: str = "127.0.0.1:0", **options: Any) -> Listener:
    handlers = {"echo": lambda request: request.payload}
    return await verbena.listen(address, handlers=handlers, config=replace(SETTINGS, **options))


@contextlib.asynccontextmanager
async def open_ports(
    address: str, **options: Any
) -> AsyncIterator[tuple[Listener, set[tuple[str, str, int]]]]:
    """A listener, and the ports that it has opened."""
    before = own_ports()
    async with await listen(address, **options) as opened:
        more = own_ports() - before
        assert set(more.values()) <= {1}
        yield opened, set(more)
    assert own_ports() == before


async def check_wires(address: str) -> None:
    for wire in ("iwarp", "quic"):
        async with verbena.connect(address, wire=wire, config=SETTINGS, timeout_s=30) as session:
            assert session.wire == wire
            assert await session.call("echo", b"x" * 100_000) == b"x" * 100_000


def port_of(listener: Listener) -> int:
    return int(listener.address.rpartition(":")[2])


# Which ports are open


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
async def test_a_node_has_one_tcp_and_one_udp_port_of_one_number(host: str) -> None:
    """On the address that was asked for."""
    where = f"[{host}]" if ":" in host else host
    async with open_ports(f"{where}:0") as (listener, ports):
        number = port_of(listener)
        assert ports == {("tcp", host, number), ("udp", host, number)}
        assert listener.wires == ("iwarp", "quic")


async def test_on_all_interfaces_it_is_the_same_port() -> None:
    async with open_ports(":0") as (listener, ports):
        assert {number for _, _, number in ports} == {port_of(listener)}
        assert {address for _, address, _ in ports} <= {"0.0.0.0", "::"}
        assert {protocol for protocol, _, _ in ports} == {"tcp", "udp"}
        await check_wires(f"127.0.0.1:{port_of(listener)}")
        await check_wires(f"[::1]:{port_of(listener)}")


async def test_a_name_with_several_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handshakes and links of both wires work at each address."""
    resolve = socket.getaddrinfo

    def both(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != "twice":
            return resolve(host, port, *arguments, **options)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    async with open_ports("twice:0") as (listener, ports):
        number = port_of(listener)
        assert ports == {
            (protocol, address, number) for protocol in ("tcp", "udp") for address in ("127.0.0.1", "::1")
        }
        for address in ("127.0.0.1", "[::1]"):
            await check_wires(f"{address}:{number}")


async def test_a_program_that_only_connects_opens_no_port_for_links() -> None:
    """The end that dials needs no firewall rule."""
    async with await listen(wires=("iwarp",)) as listener:
        before = own_ports()
        async with verbena.connect(listener.address, config=SETTINGS) as session:
            assert session.wire == "iwarp"
            assert {protocol for protocol, _, _ in own_ports() - before} <= {
                "udp"
            }  # quic's own, to dial from


@pytest.mark.usefixtures("encrypted")
async def test_with_tls_on_the_wire_it_is_one_port_too() -> None:
    """A link inside TLS is recognised by its ALPN protocol, a hello outside TLS by its first bytes."""
    async with open_ports("127.0.0.1:0") as (listener, ports):
        number = port_of(listener)
        assert ports == {("tcp", "127.0.0.1", number), ("udp", "127.0.0.1", number)}
        await check_wires(listener.address)


# The data port


async def test_the_data_port_is_the_port_of_both_wires() -> None:
    """On the address of the listener, too."""
    data = free_port()
    async with open_ports("[::1]:0", data_port=data) as (listener, ports):
        number = port_of(listener)
        assert number != data
        assert ports == {("tcp", "::1", number), ("tcp", "::1", data), ("udp", "::1", data)}
        await check_wires(listener.address)
        with socket.create_connection(("::1", number)) as client:
            client.settimeout(10)
            client.sendall(LINK_START + bytes(100))
            assert b"bad_message" in await asyncio.to_thread(client.recv, 4096), "only hellos come here"


async def test_a_data_port_that_is_that_of_the_listener_changes_nothing() -> None:
    number = free_port()
    async with open_ports(f"127.0.0.1:{number}", data_port=number) as (listener, ports):
        assert ports == {("tcp", "127.0.0.1", number), ("udp", "127.0.0.1", number)}
        await check_wires(listener.address)


# Ports that are taken


@pytest.mark.parametrize(
    ("kind", "words"), [(socket.SOCK_STREAM, "TCP port"), (socket.SOCK_DGRAM, "UDP port")]
)
async def test_a_data_port_that_is_taken_is_an_error(kind: int, words: str) -> None:
    """The error names the protocol and the wire, and nothing stays open."""
    before = own_ports()
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(errors.AddressError, match=f"{words} {number}") as caught:
            await listen(data_port=number)
        assert caught.value.code == "address_in_use"
    assert own_ports() == before


async def test_a_port_whose_udp_port_is_taken_is_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        with pytest.raises(errors.AddressError, match=f"UDP port {number} of the wire quic"):
            await listen(f"127.0.0.1:{number}")


async def test_port_zero_chooses_one_that_is_free_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the UDP port of the same number is taken, it chooses another one."""
    bind, numbers = listening.bind, list[int]()
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    async def bind_and_take(host: str, port: int) -> list[socket.socket]:
        sockets = await bind(host, port)
        numbers.append(sockets[0].getsockname()[1])
        if len(numbers) == 1:
            taken.bind(("127.0.0.1", numbers[0]))
        return sockets

    monkeypatch.setattr(listening, "bind", bind_and_take)
    with taken:
        async with await listen() as listener:
            assert len(numbers) == 2
            assert port_of(listener) == numbers[1]
            await check_wires(listener.address)


# All kinds of connections at once


async def silent(port: int, start: bytes) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    with contextlib.suppress(OSError):
        client.send(start)
    return client


UNFINISHED = {
    "silent": [b""],
    "half a key": [LINK_START[:9]],
    "half a request": [LINK_START + b"\x40"],
    "half a hello": [b"VRBN"],
    "half of TLS": [b"\x16\x03\x01\x02\x00"],
    "another protocol": [b"GET / HTTP/1.1"],
    "mixed": [b"", LINK_START, b"VRBN\x01\x00", b"\x16\x03", b"*1\r\n"],
}


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_unfinished_connections_do_not_lock_out_sessions(kind: str) -> None:
    """600 connections of one kind, or of all kinds, that never go on: sessions are opened all the same."""
    starts = UNFINISHED[kind]
    async with await listen() as listener:
        port = port_of(listener)
        held = [await silent(port, starts[number % len(starts)]) for number in range(600)]
        await check_wires(listener.address)
        held += [await silent(port, starts[number % len(starts)]) for number in range(100)]
        async with verbena.connect(listener.address, wire="iwarp", config=SETTINGS) as session:
            assert await session.call("echo", b"still") == b"still"
        for one in held:
            one.close()


async def test_sessions_are_opened_while_garbage_arrives() -> None:
    """20 sessions at once, among connections that send something else and end."""
    async with await listen() as listener:
        port = port_of(listener)

        async def garbage(number: int) -> None:
            start = (
                b"\xff" * 50,
                LINK_START + b"\xff" * 4,
                b"VRBN\xff",
                b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",
            )
            (await silent(port, start[number % 4])).close()

        async def call(number: int) -> bytes:
            wire = "iwarp" if number % 2 else "quic"
            async with verbena.connect(listener.address, wire=wire, node=node, timeout_s=30) as session:
                return await session.call("echo", str(number).encode())

        node = await asyncio.to_thread(verbena.Node, SETTINGS)
        answers, _ = await asyncio.gather(
            asyncio.gather(*(call(number) for number in range(20))),
            asyncio.gather(*(garbage(number) for number in range(200))),
        )
        assert answers == [str(number).encode() for number in range(20)]
        await asyncio.to_thread(node.close)


async def test_a_link_without_a_session_is_refused() -> None:
    """A peer that speaks the wire's protocol and has no token."""
    async with await listen() as listener:
        with verbs.open_device("iwarp") as context:
            pd = context.alloc_pd()
            qp = pd.create_qp(context.create_cq(16), max_send=1, max_recv=1)
            with pytest.raises(errors.RejectedError):
                await context.connect(qp, listener.address, timeout_s=10)
        assert listener.sessions == []
        await check_wires(listener.address)
