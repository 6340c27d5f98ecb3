"""`verbena serve` as users start it: the banner, the sockets, the exit."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest
import redis
from support.kv.kv_store import StartStore, running
from support.rdma.link import wait_until

import verbena


def test_redis_cli_gets_an_answer(store):
    """As the README describes: start, then `redis-cli ping`."""
    assert store.cli("ping") == "PONG\n"
    assert store.cli("set", "greeting", "hello") == "OK\n"
    assert store.cli("get", "greeting") == "hello\n"


def test_the_banner_lists_every_listener(start: StartStore, tmp_path: Path):
    """Every socket and every wire, with the chosen port."""
    path = str(tmp_path / "store.sock")
    store = start("--kv-sessions", "--session-listen-port", "0", "--kv-unix-socket", path)
    assert re.search(rf"^  redis +127\.0\.0\.1:{store.port}$", store.banner, re.M)
    assert re.search(rf"^  redis, unix +{re.escape(path)}$", store.banner, re.M)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0_and_leaves_nothing(start: StartStore, tmp_path: Path, number: int):
    """Clients are disconnected, the Unix socket is removed, the status is 0."""
    path = tmp_path / "store.sock"
    store = start("--kv-unix-socket", str(path))
    with redis.Redis(unix_socket_path=str(path)) as client, store.connect() as idle:
        client.set("a", 1)
        assert path.exists()
        assert store.end(number) == 0
        assert idle.recv(1) == b""
    assert not path.exists()


def test_shutdown_ends_it_with_status_0(start: StartStore):
    """SHUTDOWN has no reply: the connection is closed and the process exits."""
    store = start()
    with store.connect() as raw:
        raw.sendall(b"SHUTDOWN NOSAVE\r\n")
        assert raw.recv(100) == b""
    assert store.process.wait(40) == 0


def test_a_port_that_is_taken_and_was_not_asked_for_is_replaced():
    """The banner reports it. If the port was requested explicitly, it is an error instead."""
    with socket.create_server(("127.0.0.1", 6379), reuse_port=False) if _is_free(6379) else socket.socket():
        with running("--config", os.devnull) as store:
            assert store.port not in (0, 6379)
            assert f"note: port 6379 is taken: {store.port} is used instead" in store.banner
            assert store.client().ping()
        with pytest.raises(AssertionError, match="6379"), running("--port", "6379"):
            pass


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def test_sessions_are_taken_as_configured(start: StartStore):
    """verbena.connect() reaches the same process, and INFO counts its commands once both ends are done."""
    store = start("--kv-sessions", "--session-listen-port", "0")
    match = re.search(r"sessions +(\S+) on (.+)$", store.banner, re.M)
    assert match
    assert "shm" in match[2]
    async with verbena.connect(match[1]):
        client = store.client()
        wait_until(lambda: client.info("rdma")["rdma_connections"] == 1, "the connection in INFO rdma")


def test_a_stale_unix_socket_is_replaced_and_one_in_use_is_not(start: StartStore, tmp_path: Path):
    """A socket that a killed server left does not prevent the next start; that of a running server is not
    replaced."""
    path = tmp_path / "store.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    start("--kv-unix-socket", str(path))
    with redis.Redis(unix_socket_path=str(path)) as client:
        assert client.ping()
    with (
        pytest.raises(AssertionError, match=r"in use|address_in_use"),
        running("--kv-unix-socket", str(path)),
    ):
        pass
    assert path.exists()
