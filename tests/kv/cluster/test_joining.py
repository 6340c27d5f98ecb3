"""Before a node has joined its cluster: it is not ready, and serves no key."""

from __future__ import annotations

import asyncio
import http.client
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.kv.cluster import Cluster, Node, ReplyError
from support.ports import free_port

from verbena.shards.stores import open_store


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process holds the map's file, so that no node can write to it."""
    asyncio.run(open_store(f"sqlite://{file}").close())
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def health(port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except ConnectionRefusedError:
        return 0, ""
    finally:
        connection.close()


@pytest.mark.timeout(120)
def test_a_node_is_ready_when_it_has_joined(tmp_path: Path) -> None:
    """Before: /healthz is 503 and nothing is printed. As in Redis, PING is answered, and a command with a key
    gets CLUSTERDOWN."""
    page = free_port()
    options = ("--metrics-listen", f"127.0.0.1:{page}")
    node = Node(tmp_path, f"sqlite://{tmp_path}/map.db", "n0", keep=False, options=options)
    node.port, node.sessions = free_port(), free_port()
    made = Cluster([node], node.store)
    try:
        with locked(tmp_path / "map.db"):
            node.start()
            made.until(lambda: health(page) == (503, "cluster: not in the cluster yet"))
            assert node.raw("PING") == b"PONG"
            with pytest.raises(ReplyError, match="CLUSTERDOWN"):
                node.raw("SET", "key", "value")
            assert node.said.read_text() == ""
        node.ready()
        assert health(page) == (200, "ok")
    finally:
        node.kill()
