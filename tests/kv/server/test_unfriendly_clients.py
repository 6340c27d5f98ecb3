"""Clients that harm others, by intent or not: web pages, long pipelines, too many of them. Those that do not
read their replies: tests/security/test_frontends.py."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest
import redis
from support.kv.kv_store import StartStore, Store
from support.kv.resp import pack

from verbena import kv
from verbena.errors import VerbenaError


@pytest.mark.parametrize("first", [b"POST / HTTP/1.1", b"post /", b"Host: store", b"hOsT: x"])
def test_a_web_page_cannot_run_commands(store: Store, client: redis.Redis, first: bytes) -> None:
    """A line of an HTTP request ends the connection: commands in its body do not run. Redis does so too."""
    with store.connect() as browser:
        browser.sendall(first + b"\r\nSET stolen 1\r\n\r\n")
        assert browser.recv(100) == b""
    assert client.get("stolen") is None
    assert client.ping()


def test_a_pipeline_may_be_sent_before_any_reply_is_read(store: Store, client: redis.Redis) -> None:
    """Requests are still read while replies wait, so that client and store do not wait for each other."""
    client.set("key", "x" * 1000)
    count = 200_000
    with store.connect() as eager:
        eager.sendall(pack("GET", "key") * count + pack("PING"))  # replies of 200 MB
        left = count * (len("$1000\r\n\r\n") + 1000)
        while left:
            left -= len(eager.recv(min(left, 1 << 20)))
        assert _read(eager, 7) == b"+PONG\r\n"


@pytest.mark.alone
def test_without_descriptors_connections_are_closed_and_the_store_serves_on(
    start: StartStore,
) -> None:
    """accept() does not spin at the limit of open files: others are served, and the processor is idle."""
    store = start("--kv-maxclients", "5000")
    subprocess.run(["prlimit", f"--pid={store.process.pid}", "--nofile=64:64"], check=True)
    waiting: list[socket.socket] = []
    try:
        with store.client() as client:
            client.ping()
            for _ in range(100):
                waiting.append(store.connect())
            before = _cpu_s(store)
            time.sleep(0.5)
            assert client.ping()
            assert _cpu_s(store) - before < 0.25
            assert client.info("stats")["rejected_connections"] > 0
    finally:
        for one in waiting:
            one.close()


def test_sessions_and_rdma_clients_connect_when_descriptors_are_free_again(start: StartStore) -> None:
    """Links that arrive while no descriptor is left do not end the acceptance of links on their wire."""
    store = start(
        "--kv-maxclients", "5000", "--session-listen-port", "0", "--kv-rdma-listen", "iwarp://127.0.0.1:0"
    )
    sessions = store.banner.split("  sessions")[1].split()[0]
    limit = ["prlimit", f"--pid={store.process.pid}"]
    used = len(list(Path(f"/proc/{store.process.pid}/fd").iterdir()))
    subprocess.run([*limit, f"--nofile={used + 20}:4096"], check=True)
    waiting: list[socket.socket] = []
    try:
        for _ in range(60):
            waiting.append(store.connect())
        for wire in ("shm", "iwarp"):
            with pytest.raises(VerbenaError), kv.Client(sessions, wire=wire):
                pass
    finally:
        for one in waiting:
            one.close()
    subprocess.run([*limit, "--nofile=4096:4096"], check=True)
    for wire in ("shm", "iwarp"):
        with kv.Client(sessions, wire=wire) as client:
            assert client.execute("PING") == "PONG"


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the store closed the connection"
        data += piece
    return data


def _cpu_s(store: Store) -> float:
    fields = Path(f"/proc/{store.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
