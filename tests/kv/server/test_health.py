"""/healthz of a store asks the engine's thread, and of other programs what they have registered."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from support.kv.kv_store import running
from support.ports import free_port

from verbena import transport
from verbena.kv.server.health import EngineCheck
from verbena.kv.server.server import Server


async def get(
    address: str, path: str = "/healthz", *, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    """Returns status, headers and body."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    status, *lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


@dataclass
class Store:
    server: Server
    node: transport.Node
    address: str
    busy: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def kept_busy(self):
        """Keeps the engine's thread busy, without the GIL."""
        begun = threading.Event()
        self.busy.clear()

        def wait() -> None:
            begun.set()
            self.busy.wait()

        self.server.engine.post(wait)
        assert begun.wait(10)
        try:
            yield
        finally:
            self.busy.set()


@contextlib.asynccontextmanager
async def store() -> AsyncIterator[Store]:
    node = await asyncio.to_thread(transport.Node)
    server = Server()
    node.health_checks["engine"] = EngineCheck(server)
    page = await asyncio.to_thread(node.serve_metrics, "127.0.0.1:0")
    server.start()
    try:
        yield Store(server, node, page.address)
    finally:
        await asyncio.to_thread(server.close)
        await asyncio.to_thread(node.close)


async def test_a_store_whose_engine_answers_is_healthy() -> None:
    async with store() as kept:
        assert await get(kept.address) == (200, (await get(kept.address))[1], "ok\n")


async def test_a_store_whose_engine_is_busy_is_not_healthy_until_it_answers() -> None:
    """The answer comes within the time limit and names the reason; later probes post nothing more."""
    async with store() as kept:
        with kept.kept_busy():
            for _ in range(2):
                began = time.monotonic()
                status, _, body = await get(kept.address)
                assert status == 503
                assert body.startswith("engine: its thread has not answered for ")
                assert time.monotonic() - began < 2
        status, _, body = await get(kept.address)
        assert (status, body) == (200, "ok\n")


async def test_a_store_whose_engine_has_ended_is_not_healthy() -> None:
    async with store() as kept:
        await asyncio.to_thread(kept.server.stop)
        status, _, body = await get(kept.address)
        assert (status, body) == (503, "engine: its thread has ended\n")


async def test_a_thousand_probes_at_once_delay_none_beyond_the_time_limit() -> None:
    """They share one round trip. Those above the limit of connections are refused at once."""
    async with store() as kept:

        async def probe() -> tuple[int, float]:
            began = time.monotonic()
            try:
                status = (await get(kept.address))[0]
            except (OSError, IndexError):  # above the limit, before its request was read
                status = 0
            return status, time.monotonic() - began

        with kept.kept_busy():
            ended = await asyncio.gather(*(probe() for _ in range(1000)))
        assert max(seconds for _, seconds in ended) < 5
        assert {status for status, _ in ended} <= {0, 503}
        assert (await get(kept.address))[0] == 200


async def test_a_store_whose_disk_refuses_writes_is_not_healthy(tmp_path: Path) -> None:
    """It is again when the disk takes writes."""
    address = f"127.0.0.1:{free_port()}"
    flags = ("--kv-persistence-dir", str(tmp_path), "--session-listen-port", "0", "--metrics-listen", address)
    with running(*flags) as started, started.client() as client:
        client.set("key", "value")
        assert (await get(address))[0] == 200
        used = max(file.stat().st_size for file in tmp_path.glob("*.vlog"))
        resource.prlimit(started.process.pid, resource.RLIMIT_FSIZE, (used, resource.RLIM_INFINITY))
        with pytest.raises(redis.RedisError):
            client.set("key", "x" * 10_000)
        status, _, body = await get(address)
        assert status == 503
        assert body.startswith("engine: MISCONF Errors writing to the log")
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(started.process.pid, resource.RLIMIT_FSIZE, unlimited)
        deadline = time.monotonic() + 10
        while (await get(address))[0] != 200:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_replica_is_healthy_although_it_refuses_writes() -> None:
    async with store() as kept:
        kept.server.engine.refuse_writes = "READONLY You can't write against a read only replica."
        assert (await get(kept.address))[0] == 200


async def test_a_check_that_fails_or_hangs_is_named() -> None:
    """Healthy checks are not, and HEAD has no body."""

    async def hangs() -> str:
        await asyncio.sleep(60)
        return ""

    async def raises() -> str:
        raise OSError("no disk")

    async with store() as kept:
        kept.node.health_checks.update(slow=hangs, broken=raises)
        status, headers, body = await get(kept.address)
        assert status == 503
        assert body == "slow: no answer within 1 s\nbroken: the check failed: OSError('no disk')\n"
        assert (await get(kept.address, method="HEAD")) == (503, headers, "")
        for path in ("/", "/metrics", "/status.json"):
            status, headers, body = await get(kept.address, path, method="HEAD")
            assert (status, body) == (200, "")
            assert int(headers["content-length"]) > 0
