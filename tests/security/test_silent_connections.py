"""Silent connections: their deadline starts at accept, and they do not lock out other peers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.certificates import Authority
from support.kv.kv_store import running
from support.registry.http_client import serve

import verbena
from verbena.transport import Request, Settings
from verbena.transport.handshake.tls import client_context, server_context
from verbena.transport.observe.metrics import endpoint

SILENT = 600


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds, at most five seconds: the control thread counts."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


def echo(request: Request) -> bytes:
    return request.payload


@contextlib.asynccontextmanager
async def silent_connections(
    address: str, count: int = SILENT, *, start: bytes = b""
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    host, _, port = address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    for _, writer in opened:
        writer.write(start)
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.parametrize("start", [b"", b"VRBN"], ids=["silent", "started"])
async def test_silent_connections_do_not_lock_out_a_session(start: bytes) -> None:
    """A real handshake among them takes less than a second."""
    settings = Settings(connection_timeout_ms=60_000)
    async with (
        await verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=settings) as listener,
        silent_connections(listener.address, start=start),
    ):
        began = time.monotonic()
        async with verbena.connect(listener.address) as session:
            assert time.monotonic() - began < 1
            assert await session.call("echo", b"hello") == b"hello"
        await until(lambda: listener.refused["limit_exceeded"] >= SILENT - 256)


async def test_a_store_closes_clients_that_do_not_finish_their_tls_handshake(tmp_path: Path) -> None:
    """They would count as clients for ever, so that `maxclients` silent connections lock out all others."""
    pair = Authority(tmp_path).issue("server")
    files = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    with running("--kv-tls-port", "0", *files) as store:
        address = store.banner.split("redis, tls")[1].split()[0]
        async with silent_connections(address, 20) as opened:
            began = time.monotonic()
            for reader, _ in opened:
                assert await asyncio.wait_for(reader.read(), 15) == b""
            assert time.monotonic() - began > 3


async def test_silent_connections_do_not_lock_out_a_session_with_tls(
    tmp_path: Path,
) -> None:
    """Connections that have not begun their TLS handshake count too."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    server = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    async with (
        await verbena.listen(
            "127.0.0.1:0", handlers={"echo": echo}, tls=server, config=Settings(connection_timeout_ms=60_000)
        ) as listener,
        silent_connections(listener.address),
    ):
        began = time.monotonic()
        async with verbena.connect(listener.address, tls=client_context(ca=authority.ca)) as session:
            assert time.monotonic() - began < 1
            assert await session.call("echo", b"hello") == b"hello"
        await until(lambda: listener.refused["limit_exceeded"] >= SILENT - 256)


async def test_the_deadline_of_a_handshake_starts_at_accept() -> None:
    """All of many silent connections are closed after one time limit, not one group after another."""
    settings = Settings(connection_timeout_ms=300)
    async with (
        await verbena.listen("127.0.0.1:0", config=settings) as listener,
        silent_connections(listener.address) as opened,
    ):
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in opened)), 5)
        assert time.monotonic() - began < 3
        await until(lambda: sum(listener.refused.values()) >= SILENT)
        assert sum(listener.refused.values()) == SILENT


async def test_silent_connections_do_not_lock_out_the_status_page() -> None:
    async with verbena.listen("127.0.0.1:0", config=Settings()) as listener:
        server = await asyncio.to_thread(listener.node.serve_metrics, "127.0.0.1:0")
        async with silent_connections(server.address, 8 * endpoint.MAX_CONNECTIONS):
            host, _, port = server.address.rpartition(":")
            began = time.monotonic()
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await asyncio.wait_for(reader.readuntil(b"ok\n"), 5)
            assert answer.startswith(b"HTTP/1.1 200")
            assert time.monotonic() - began < 1
            writer.close()


async def test_silent_connections_do_not_lock_out_the_registry(tmp_path: Path) -> None:
    """Nor do half-sent heads of requests; a connection with a request keeps its place."""
    async with serve(tmp_path, max_connections=20) as client:
        host, _, port = client.base.removeprefix("http://").partition(":")
        kept_reader, kept = await asyncio.open_connection(host, int(port))
        kept.write(b"GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
        await kept_reader.readuntil(b"\r\n\r\n{}")
        async with silent_connections(f"{host}:{port}", 100, start=b"GET /v2/ HTTP/1.1\r\nHost: x\r\n"):
            began = time.monotonic()
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n{}"), 5)
            assert time.monotonic() - began < 1
            kept.write(b"GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(kept_reader.readuntil(b"\r\n\r\n{}"), 5)
            writer.close()
        kept.close()
