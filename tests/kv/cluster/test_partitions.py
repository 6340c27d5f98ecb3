"""Partitions of every pair, in network namespaces: a move that is cut through ends, and no key is lost."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cluster import MAIN, Cluster, Node, ReplyError, Wire
from support.etcd import ETCD, etcd

NETWORK = f"10.{os.getpid() % 200 + 20}.7"
KEYS = 300
OPTIONS = (
    *(
        "--cluster-node-timeout-ms",
        "4000",
        "--cluster-write-pause-budget-ms",
        "1000",
        "--no-kv-protected-mode",
    ),
    *("--session-peer-timeout-ms", "1000", "--session-heartbeat-interval-ms", "100"),
)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """The test and etcd at .1, nodes at .2 and .3, each in a namespace of its own, on one bridge."""

    def __init__(self) -> None:
        self.name = f"vb{os.getpid() % 100000}"
        self.spaces = [f"{self.name}{letter}" for letter in "ab"]

    def open(self) -> None:
        ip("link", "add", self.name, "type", "bridge")
        ip("address", "add", f"{NETWORK}.1/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for number, space in enumerate(self.spaces, start=2):
            ip("netns", "add", space)
            ip("link", "add", f"{space}h", "type", "veth", "peer", "name", "e", "netns", space)
            ip("link", "set", f"{space}h", "master", self.name, "up")
            for words in (
                ("address", "add", f"{NETWORK}.{number}/24", "dev", "e"),
                ("link", "set", "e", "up"),
                ("link", "set", "lo", "up"),
            ):
                ip("-n", space, *words)

    def close(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.name], check=False, capture_output=True)

    @contextmanager
    def cut(self, one: int, other: int) -> Iterator[None]:
        """Neither hears the other; each still hears everybody else. 1 is etcd."""
        pairs = [(one, other), (other, one)]
        for here, there in pairs:
            if here != 1:
                ip("-n", self.spaces[here - 2], "route", "add", "blackhole", f"{NETWORK}.{there}/32")
        try:
            yield
        finally:
            for here, there in pairs:
                if here != 1:
                    ip("-n", self.spaces[here - 2], "route", "delete", "blackhole", f"{NETWORK}.{there}/32")


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("namespaces need root and iproute2")
    made = Network()
    try:
        made.open()
    except subprocess.CalledProcessError as error:
        made.close()
        pytest.skip(f"namespaces are not permitted: {error.stderr!r}")
    yield made
    made.close()


@pytest.mark.skipif(ETCD is None, reason="etcd is not installed (apt-get install etcd-server)")
@pytest.mark.timeout(180)
def test_a_move_that_is_cut_through_loses_nothing(network: Network, tmp_path: Path) -> None:
    """Source and target, source and map, target and map: each is cut while slots move, and mended. In the end
    the map has no move, every key is at one place, and the other node says where."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    with etcd(tmp_path, host=f"{NETWORK}.1") as address:
        nodes = [
            Node(
                tmp_path,
                f"etcd://{address}",
                f"n{number}",
                options=(*OPTIONS, "--session-secret-file", str(secret)),
                prefix=("ip", "netns", "exec", network.spaces[number]),
                host=f"{NETWORK}.{number + 2}",
            )
            for number in range(2)
        ]
        made = Cluster(nodes, f"etcd://{address}")
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                node.ready()
            assert nodes[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
            with Wire(nodes[0].host, nodes[0].port) as wire:
                for number in range(KEYS):
                    wire.run("SET", f"key:{number}", "x" * number)
            for one, other in itertools.combinations((1, 2, 3), 2):
                _move_through(made, network, one, other)
                assert _contents(made) == {b"key:%d" % number: b"x" * number for number in range(KEYS)}
        finally:
            for node in nodes:
                node.kill()


def _move_through(made: Cluster, network: Network, one: int, other: int) -> None:
    source = made[0] if _owner(made) == made[0].id else made[1]
    target = made[1] if source is made[0] else made[0]
    with network.cut(one, other):
        moving = subprocess.Popen(
            [*MAIN, "shards", "move", "0-16383", target.name, "--detach", "--cluster-map-store", made.store],
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
        )
        assert moving.wait(60) == 0
        # Under way, or as far as it can come: whoever hears the map knows of it.
        made.until(lambda: _is_known(made, network, one, other))
    made.until(lambda: _is_settled(made), timeout_s=90)


def _is_known(made: Cluster, network: Network, one: int, other: int) -> bool:
    hearing = [node for number, node in enumerate(made.nodes, start=2) if {one, other} != {1, number}]
    try:
        return all(
            b"->-" in node.raw("CLUSTER", "NODES") or b"-<-" in node.raw("CLUSTER", "NODES")
            for node in hearing
        )
    except (OSError, ReplyError):
        return False


def _owner(made: Cluster) -> str:
    return str(made[0].raw("CLUSTER", "SLOTS")[0][2][2].decode())


def _is_settled(made: Cluster) -> bool:
    try:
        lines = [node.raw("CLUSTER", "NODES") for node in made.nodes]
        owners = {node.raw("CLUSTER", "SLOTS")[0][2][2] for node in made.nodes}
        return (
            not any(b"->-" in line or b"-<-" in line for line in lines)
            and len(owners) == 1
            and sum(node.raw("DBSIZE") for node in made.nodes) == KEYS
        )
    except (OSError, ReplyError):
        return False


def _contents(made: Cluster) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for node in made.nodes:
        with Wire(node.host, node.port) as wire:
            for number in range(KEYS):
                try:
                    value = wire.run("GET", f"key:{number}")
                except ReplyError:
                    continue
                assert b"key:%d" % number not in found
                found[b"key:%d" % number] = value
    return found
