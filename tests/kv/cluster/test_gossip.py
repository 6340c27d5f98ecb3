"""Gossip between processes: the wire that it uses, what nodes know of each other, and when a node is
marked."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.kv.cluster import MAIN, Cluster, Node, RespConnection, cluster

from verbena.shards.cluster_map import Member
from verbena.shards.stores import change, open_store

TIMEOUT_S = 3.0
OPTIONS = ("--cluster-node-timeout-ms", str(int(TIMEOUT_S * 1000)))


def views(made: Cluster) -> dict[str, dict[str, Any]]:
    """The output of `verbena shards nodes`: for each node that answers, its view of each node."""
    done = subprocess.run(
        [*MAIN, "shards", "nodes", "--json", "--cluster-map-store", made.store],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {node.id: node.name for node in made.nodes}
    return {
        names[asked]: {names[view["id"]]: view for view in found}
        for asked, found in json.loads(done.stdout).items()
    }


def line(asked: Node, about: Node) -> list[str]:
    """The fields of CLUSTER NODES."""
    rows = [row.split() for row in asked.raw("CLUSTER", "NODES").decode().splitlines()]
    return next(row for row in rows if row[0] == about.id)


@pytest.mark.timeout(120)
def test_the_configuration_selects_the_wire_of_gossip(tmp_path: Path) -> None:
    """Two nodes have the key on, one has it off: its messages use TCP, and it has the same information."""
    with cluster(tmp_path, 2, keep=False, options=OPTIONS) as made:
        made.nodes.append(
            Node(tmp_path, made.store, "plain", False, (*OPTIONS, "--no-cluster-rdma-gossip-rdma"))
        )
        made[2].start().ready()

        def wires() -> dict[str, set[str]]:
            return {
                asked: {view["wire"] for name, view in about.items() if name != asked}
                for asked, about in views(made).items()
            }

        def is_heard(view: dict[str, Any]) -> bool:
            return view["health"] == "alive" and view["silent_s"] is not None and view["silent_s"] < TIMEOUT_S

        made.until(lambda: wires() == {"n0": {"shm"}, "n1": {"shm"}, "plain": {"iwarp"}})
        made.until(lambda: line(made[2], made[0])[7] == line(made[0], made[2])[7] == "connected")
        made.until(lambda: all(is_heard(view) for about in views(made).values() for view in about.values()))


@contextmanager
def busy(node: Node) -> Iterator[None]:
    """Sends commands to the node continuously."""
    over = threading.Event()

    def ask() -> None:
        with RespConnection("127.0.0.1", node.port) as wire:
            while not over.wait(0.01):
                wire.socket.sendall(b"*1\r\n$4\r\nPING\r\n" * 100)
                assert {wire.receive() for _ in range(100)} == {b"PONG"}

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            over.set()
        asking.result()


def loads(made: Cluster, name: str) -> dict[str, int]:
    """The commands per second of that node, as each node knows them."""
    return {asked: about[name]["load"] for asked, about in views(made).items()}


@pytest.mark.timeout(120)
def test_every_node_knows_how_much_the_others_do(tmp_path: Path) -> None:
    """The commands per second of a busy node, as seen by itself and by another, idle node."""
    with cluster(tmp_path, 2, keep=False, options=OPTIONS) as made, busy(made[0]):
        made.until(lambda: {name for name, load in loads(made, "n0").items() if load > 100} == {"n0", "n1"})
        # many commands were sent to it while it started
        made.until(lambda: max(loads(made, "n1").values()) < 100)
        table = subprocess.run(
            [*MAIN, "shards", "nodes", "--cluster-map-store", made.store],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "commands/s" in table.stdout.splitlines()[0]
        assert len(table.stdout.splitlines()) == 1 + 2 * 2


@pytest.mark.timeout(120)
def test_a_member_without_any_message_is_reported_as_silent(tmp_path: Path) -> None:
    """The map contains a member whose process does not run."""
    ghost = Member("0" * 40, "127.0.0.1", 1, "127.0.0.1:1", "ghost")
    with cluster(tmp_path, 1, keep=False, options=OPTIONS) as made:

        async def meet() -> None:
            store = open_store(made.store)
            try:
                await change(store, lambda map: map.meet(ghost))
            finally:
                await store.close()

        asyncio.run(meet())
        command = [*MAIN, "shards", "nodes", "--cluster-map-store", made.store]

        def said(*flags: str) -> str:
            return subprocess.run([*command, *flags], capture_output=True, text=True, check=True).stdout

        made.until(lambda: ghost.id in said("--json"))
        (views,) = json.loads(said("--json")).values()
        assert [view["silent_s"] for view in views if view["id"] == ghost.id] == [None]
        assert "never" in next(row for row in said().splitlines() if row.startswith("ghost"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_silent_node_is_marked_when_its_time_is_over_and_not_before(
    tmp_path: Path, how: signal.Signals
) -> None:
    """CLUSTER NODES shows the time of the last message from a node, and since when a ping is unanswered. The
    command line shows the same, without the node that does not answer."""
    with cluster(tmp_path, 3, keep=False, options=OPTIONS) as made:
        asked, victim = made[0], made[2]
        made.until(lambda: all(int(line(node, victim)[5]) > 0 for node in made.nodes[:2]))
        assert line(asked, asked)[4:6] == ["0", "0"]
        assert victim.process is not None
        victim.process.send_signal(how)
        began = time.time()
        marked = made.until(lambda: (row := line(asked, victim))[7] == "disconnected" and (row, time.time()))
        row, at = marked
        asked_ms, heard_ms = int(row[4]), int(row[5])
        # the last message came when the process was stopped
        assert abs(heard_ms / 1000 - began) < TIMEOUT_S / 2
        assert heard_ms / 1000 + TIMEOUT_S <= at < began + 2 * TIMEOUT_S
        assert 0 < asked_ms <= at * 1000
        made.until(lambda: line(asked, victim)[2] == "master,fail")
        made.until(lambda: line(asked, made[1])[2] == "master")
        if how is signal.SIGKILL:
            # Each node must receive the other's report before both mark it as failed.
            made.until(lambda: {about["n2"]["health"] for about in views(made).values()} == {"fail"})
            seen = views(made)
            assert set(seen) == {"n0", "n1"}
            assert all(about["n2"]["silent_s"] > TIMEOUT_S for about in seen.values())
        else:
            victim.process.send_signal(signal.SIGCONT)
            made.until(lambda: line(asked, victim)[7] == "connected")
