"""Leases: a node that cannot renew its lease serves nothing, whatever the cause, and recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.etcd import ETCD, etcd, etcd_process
from support.kv.cluster import Cluster, ReplyError, RespConnection, cluster

from verbena.shards.stores import open_store

TIMEOUT = ("--cluster-node-timeout-ms", "2000")


@contextmanager
def single(folder: Path, kind: str) -> Iterator[Cluster]:
    if kind == "sqlite":
        with cluster(folder, 1, keep=False, options=TIMEOUT) as made:
            yield made
        return
    if ETCD is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    with (
        etcd(folder) as address,
        cluster(folder, 1, keep=False, store=f"etcd://{address}", options=TIMEOUT) as made,
    ):
        yield made


def holders(store: str) -> set[str]:
    async def ask() -> set[str]:
        opened = open_store(store)
        try:
            return await opened.leaseholders()
        finally:
            await opened.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["sqlite", "etcd"])
def test_a_node_that_was_stopped_serves_nothing_old(tmp_path: Path, kind: str) -> None:
    """The lease ends while the process is stopped. A write that was already queued is refused, although the
    engine receives it first. Then the node renews its lease and serves."""
    with single(tmp_path, kind) as made, RespConnection("127.0.0.1", made[0].port) as wire:
        assert made[0].process is not None
        assert wire.run("SET", "a", "1") == b"OK"
        assert holders(made.store) == {made[0].id}
        made[0].process.send_signal(signal.SIGSTOP)
        made.until(lambda: not holders(made.store))
        wire.send("SET", "a", "2")
        wire.send("GET", "a")
        made[0].process.send_signal(signal.SIGCONT)
        for _ in range(2):
            with pytest.raises(ReplyError, match="CLUSTERDOWN the node's lease has ended"):
                wire.receive()
        made.until(lambda: serves(wire))
        assert wire.run("GET", "a") == b"1"


def serves(wire: RespConnection) -> bool:
    try:
        wire.run("GET", "a")
    except ReplyError:
        return False
    return True


@pytest.mark.alone
@pytest.mark.skipif(ETCD is None, reason="etcd is not installed (apt-get install etcd-server)")
def test_a_node_that_is_cut_off_stops_before_its_lease_can_end(tmp_path: Path) -> None:
    """etcd is stopped: no write is accepted later than the node's timeout after the last renewal."""
    with single(tmp_path, "etcd") as made, RespConnection("127.0.0.1", made[0].port) as wire:
        process = etcd_process(tmp_path)
        os.kill(process, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            count, last, error = increments(wire)
            assert "CLUSTERDOWN" in error
            assert last - stopped < 2.0
        finally:
            os.kill(process, signal.SIGCONT)
        made.until(lambda: serves(wire))
        assert int(wire.run("GET", "count")) == count


def increments(wire: RespConnection) -> tuple[int, float, str]:
    """Returns the number of accepted increments, the time of the last one, and the first error reply."""
    count, last = 0, time.monotonic()
    while True:
        try:
            count = wire.run("INCR", "count")
            last = time.monotonic()
        except ReplyError as error:
            return count, last, str(error)


def test_a_node_that_ends_gives_its_lease_back(tmp_path: Path) -> None:
    with single(tmp_path, "sqlite") as made:
        assert made[0].process is not None
        made[0].process.terminate()
        assert made[0].process.wait(30) == 0
        assert holders(made.store) == set()
