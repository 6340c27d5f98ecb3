"""Valkey over RDMA on a real device: our two ends, peers that mean harm, Valkey's own programs if there are
any: VALKEY_RDMA_SERVER is a valkey-server with valkey-rdma.so beside it, VALKEY_RDMA_TEST its rdma-test."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kv.frontends.test_valkey_rdma import (  # noqa: F401
    test_a_library_works_over_rdma,
    test_an_immediate_beyond_the_window_closes_the_connection,
    test_closed_clients_leave_the_list,
    test_nonsense_closes_the_connection,
)

from verbena.kv.frontends.valkey_rdma import RdmaListener, rdma_pool
from verbena.kv.server.server import Server
from verbena.kv.storage.persistence import Persistence, Settings

ADDRESS = "10.0.2.15"
STOCK_PORT = 7379


@pytest.fixture
async def listener() -> AsyncIterator[RdmaListener]:
    """Our server on rxe0."""
    server = Server()
    server.start()
    listener = RdmaListener(server, "ibv", f"{ADDRESS}:0")
    yield listener
    await listener.close()
    server.close()


def foreign(variable: str) -> Path:
    """A program of Valkey's that somebody has built."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} does not say where the program is")
    return Path(path)


def test_our_client_with_a_stock_server(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """valkey-py by our connection: a pipeline of thousands, and values longer than the server's window."""
    valkey = pytest.importorskip("valkey")
    program = foreign("VALKEY_RDMA_SERVER")
    module = program.with_name("valkey-rdma.so")
    serve(
        STOCK_PORT, str(program), "--port", "0", "--save", "", "--protected-mode", "no", "--dir", "/tmp",
        "--loadmodule", str(module), f"bind={ADDRESS}", f"port={STOCK_PORT}",
    )  # fmt: skip
    pool = rdma_pool(f"rdma://{ADDRESS}:{STOCK_PORT}")
    client: Any = valkey.Valkey(connection_pool=pool)
    assert client.ping()
    assert client.info("server")["server_name"] == "valkey"
    with client.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.set(f"key {number}", number)
        assert pipe.execute() == [True] * 3000
    big = bytes(range(256)) * (3 << 12)
    for _ in range(3):
        client.set("big", big)
        assert client.get("big") == big
    with client.pipeline(transaction=True) as pipe:
        assert pipe.incr("count").incr("count").execute() == [1, 2]
    assert client.dbsize() == 3002
    pool.disconnect()


async def test_a_stock_client_with_our_server(tmp_path: Path) -> None:
    """Valkey's own test of its transport: PING, SET, BGSAVE, GET. One connection: it gives an address a tenth
    of a second to be resolved, which is short under emulation."""
    program = foreign("VALKEY_RDMA_TEST")
    server = Server()
    kept = Persistence(server, Settings(dir=str(tmp_path / "store"), fsync="no"))
    server.start()
    await asyncio.to_thread(kept.open)
    listener = RdmaListener(server, "ibv", f"{ADDRESS}:0")
    port = listener.address.rpartition(":")[2]
    process = await asyncio.create_subprocess_exec(
        program, "--host", ADDRESS, "--port", port, "--minkeys", "50", "--maxkeys", "100",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 240)
    printed = output.decode()
    await listener.close()
    await asyncio.to_thread(server.close)
    await asyncio.to_thread(kept.close)
    assert process.returncode == 0, printed
    assert "BGSAVE [OK]" in printed
    assert "KVs [OK]" in printed.splitlines()[-1]
