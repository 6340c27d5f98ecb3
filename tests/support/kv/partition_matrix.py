"""The partition matrix: nodes, the etcd of their map and a coordinator run on separate machines (network
namespaces). Two of them are disconnected while slots move (at each checkpoint) or a replica follows its
primary, and then reconnected. All nodes that accept commands are probed meanwhile, and every key is checked.

    python tests/support/kv/partition_matrix.py                    all checkpoints and pairs, as a table
    python tests/support/kv/partition_matrix.py --only DECIDING     that row only, or "together", "replicas"
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.etcd import etcd
from support.kv.cluster import MAIN, Cluster, Node, ReplyError, RespConnection
from support.kv.linearizable import Operation, fault
from support.rdma.namespaces import Network, machines
from support.rdma.verdicts import Verdicts
from verbena.shards.stores import open_store

PHASES = ("no move", "PREPARED", "BASE_COPY", "CATCH_UP", "CUT_OVER", "DECIDING", "MOVED")
STOPPING = (sys.executable, str(Path(__file__).with_name("stopping.py")))
ETCD, COORDINATOR, FIRST = 0, 1, 2  # machine numbers; nodes follow
KEYS = 200
TIMEOUT_S = 3.0
OPTIONS = (
    *("--cluster-node-timeout-ms", str(int(TIMEOUT_S * 1000)), "--cluster-write-pause-budget-ms", "2000"),
    *(
        "--session-peer-timeout-ms",
        "1000",
        "--session-heartbeat-interval-ms",
        "100",
        "--no-kv-protected-mode",
    ),
)
# Replies such as redirections, after which the command has certainly not been executed.
_REFUSALS = ("MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS")


class Prober:
    """Sends commands to one node, whether it owns the keys or not, and records what it accepted and when.
    With `wait`, a write counts once this many replicas have it; until then its outcome is unknown."""

    def __init__(self, node: Node, keys: list[bytes], seed: int, *, wait: int = 0) -> None:
        self.node, self.keys, self.wait = node, keys, wait
        self.history: list[tuple[bytes, Operation]] = []
        self.error = ""  # the first unexpected error reply
        self.last_taken = 0.0  # start time of the last write that this node accepted
        self._random, self._name, self._count = random.Random(seed), seed, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with RespConnection(self.node.host, self.node.port, timeout_s=20) as wire:
                    while not self._stop.wait(0.001):
                        self._ask(wire)
            except OSError:
                self._stop.wait(0.02)

    def _ask(self, wire: RespConnection) -> None:
        key, called = self._random.choice(self.keys), time.monotonic()
        try:
            # A value that only the primary has can be read and then lost: with replicas only writes count.
            if self.wait or self._random.random() < 0.6:
                self._write(wire, key, called)
            else:
                answer = wire.run("GET", key)
                self.history.append((key, Operation("read", answer, called, time.monotonic())))
        except ReplyError as error:
            if str(error).split()[0] not in _REFUSALS:
                self.error = self.error or str(error)

    def _write(self, wire: RespConnection, key: bytes, called: float) -> None:
        self._count += 1
        value, returned = b"%d.%d" % (self._name, self._count), math.inf
        try:
            wire.run("SET", key, value)
        except OSError:
            self.history.append((key, Operation("write", value, called)))  # the write may have happened
            raise
        self.last_taken = called
        try:
            if not self.wait or wire.run("WAIT", self.wait, 1000) >= self.wait:
                returned = time.monotonic()
        finally:
            self.history.append((key, Operation("write", value, called, returned)))


class Bench:
    """A cluster with one machine per node, or with all nodes on one machine (`together`)."""

    def __init__(self, folder: Path, network: Network, made: Cluster, *, together: bool) -> None:
        self.folder, self.network, self.made, self.together = folder, network, made, together
        self.cells = 0

    def machine(self, node: Node) -> int:
        return FIRST if self.together else FIRST + self.made.nodes.index(node)

    def parted(self, one: int, other: int) -> contextlib.AbstractContextManager[None]:
        """Disconnects two machines. Two nodes on one machine keep their shared memory."""
        return self.network.silent(one) if one == other else self.network.parted((one, other))

    @property
    def owner(self) -> Node:
        ids = {id for id in self.map().table if id is not None}
        return next(node for node in self.made.nodes if {node.id} == ids)

    def map(self) -> Any:
        return self.ask_store(lambda store: store.load()).map

    def leaseholders(self) -> set[str]:
        found: set[str] = self.ask_store(lambda store: store.leaseholders())
        return found

    def ask_store(self, what: Callable[[Any], Any]) -> Any:
        async def ask() -> Any:
            store = open_store(self.made.store)
            try:
                return await what(store)
            finally:
                await store.close()

        return asyncio.run(ask())

    @contextlib.contextmanager
    def probed(self, *, wait: int = 0) -> Iterator[list[Prober]]:
        self.cells += 1
        keys = [b"p%d:%d" % (self.cells, number) for number in range(30)]
        works = [Prober(node, keys, self.cells * 10 + n, wait=wait) for n, node in enumerate(self.made.nodes)]
        try:
            yield works
        finally:
            for one in works:
                one.stop()

    def serves(self, node: Node) -> bool:
        """True if the node accepts writes of several keys."""
        with contextlib.suppress(OSError, ReplyError):
            return all(node.raw("SET", f"probe:{number}", "1") == b"OK" for number in range(8))
        return False

    def contents(self, node: Node) -> dict[bytes, Any]:
        found: dict[bytes, Any] = {}
        with RespConnection(node.host, node.port) as wire:
            cursor = b"0"
            with contextlib.suppress(ReplyError):
                wire.run("READONLY")
            while True:
                cursor, keys = wire.run("SCAN", cursor, "COUNT", 1000)
                for key in keys:
                    with contextlib.suppress(ReplyError):
                        found[key] = wire.run("GET", key)
                if cursor == b"0":
                    return found

    def check(self, works: list[Prober]) -> str:
        """Checks the owner's keys and the history of the cell. Returns what is wrong, or an empty string."""
        held = self.contents(self.owner)
        for number in range(KEYS):
            if held.get(b"still:%d" % number) != b"x" * number:
                return f"still:{number} is lost or changed"
        now, histories = time.monotonic(), dict[bytes, list[Operation]]()
        for key, operation in (one for work in works for one in work.history):
            histories.setdefault(key, []).append(operation)
        if strange := next((work.error for work in works if work.error), ""):
            return f"a client was told: {strange}"
        if not any(one.kind == "write" for history in histories.values() for one in history):
            return "nobody wrote"
        for key, history in histories.items():
            if wrong := fault([*history, Operation("read", held.get(key), now, now + 1)]):
                return f"{key!r}: {wrong}"
        with RespConnection(self.owner.host, self.owner.port) as wire:
            for key in histories:
                wire.run("DEL", key)
        return ""


@contextlib.contextmanager
def bench(folder: Path, *, replicas: int = 0, together: bool = False) -> Iterator[Bench]:
    """Starts the cluster. `replicas`: the first node has all slots, and this many others copy it."""
    secret = folder / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    count, prefix = replicas + 1 if replicas else 2, f"10.{os.getpid() % 200 + 20}.7"
    with (
        machines(FIRST + count, prefix=prefix, reachable=True) as network,
        etcd(folder, command=tuple(network.inside(ETCD)), host=network.address(ETCD)) as address,
    ):
        nodes = [
            Node(
                folder,
                f"etcd://{address}",
                f"n{number}",
                options=(*OPTIONS, "--session-secret-file", str(secret)),
                command=STOPPING,
                prefix=network.inside(FIRST if together else FIRST + number),
                host=network.address(FIRST if together else FIRST + number),
                environment={"STOP_FOLDER": str(folder), "VERBENA_SHARDS_RDMA_MAX_SEND_SIZE": "16KiB"},
            )
            for number in range(count)
        ]
        made = Cluster(nodes, f"etcd://{address}")
        found = Bench(folder, network, made, together=together)
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                node.ready()
            assert nodes[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
            made.until(lambda: found.serves(nodes[0]))
            with RespConnection(nodes[0].host, nodes[0].port) as wire:
                for number in range(KEYS):
                    wire.run("SET", f"still:{number}", "x" * number)
            for node in nodes[1:] if replicas else ():
                made.until(lambda node=node: nodes[0].id.encode() in node.raw("CLUSTER", "NODES"))
                assert node.raw("CLUSTER", "REPLICATE", nodes[0].id) == b"OK"
            if replicas:
                made.until(lambda: followed(found))
            yield found
        finally:
            for node in nodes:
                node.kill()


# Partitions while slots move

PAIRS = ("source–target", "source–etcd", "target–etcd", "coord.–source", "coord.–target", "coord.–etcd")


def move_through(on: Bench, phase: str, pair: str) -> str:
    """One cell: disconnects the pair when the move reaches that checkpoint. Returns what is wrong, or an
    empty string."""
    made, source = on.made, on.owner
    target = next(node for node in made.nodes if node is not source)
    names = {
        "source": on.machine(source),
        "target": on.machine(target),
        "coord.": COORDINATOR,
        "etcd": ETCD,
    }
    one, _, other = pair.partition("–")
    for name in ("stopped", "go"):
        (on.folder / name).unlink(missing_ok=True)
    (on.folder / "stop_at").write_text(phase)
    moving: subprocess.Popen[bytes] | None = None
    try:
        with on.probed() as works:
            made.until(lambda: works[made.nodes.index(source)].last_taken)
            if phase != "no move":
                command = [*MAIN, "shards", "move", "0-16383", target.name, "--cluster-map-store", made.store]
                moving = subprocess.Popen(
                    on.network.inside(COORDINATOR, *command),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                made.until((on.folder / "stopped").exists)
            with on.parted(names[one], names[other]):
                parted = time.monotonic()
                (on.folder / "go").touch()
                cut_off = {"source": source, "target": target}.get(one) if other == "etcd" else None
                if cut_off is not None:
                    made.until(lambda: cut_off.id not in on.leaseholders())
                else:
                    wait_s(TIMEOUT_S)
                late = [
                    work.node.name
                    for work in works
                    if work.node is cut_off and work.last_taken > parted + TIMEOUT_S
                ]
            made.until(lambda: settled(on))
        if late:
            return f"{late[0]} took a write later than its lease may have lasted"
        both = on.contents(source).keys() & on.contents(target).keys()
        if both:
            return f"{len(both)} keys are in two places, such as {sorted(both)[0]!r}"
        return on.check(works)
    finally:
        (on.folder / "go").touch()
        if moving is not None:
            moving.kill()
            moving.wait()


def move_by_shared_memory(on: Bench) -> str:
    """Moves without a partition. Returns an empty string if the base copy went over shared memory, which the
    cells before relied on."""
    target = next(node for node in on.made.nodes if node is not on.owner)
    secret = ("--session-secret-file", str(on.folder / "secret"))
    command = [*MAIN, "shards", "move", "0-16383", target.name, "--json", *secret]
    command = on.network.inside(COORDINATOR, *command, "--cluster-map-store", on.made.store)
    report = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    return "" if report["moved"] and report.get("wire") == "shm" else str(report)


def settled(on: Bench) -> bool:
    """True if no move is in the map, no checkpoint is left, the owner serves, and the other node has no
    keys."""
    if on.map().moves or any(
        list((node.folder / node.name / "cluster" / "moves").glob("*.checkpoint")) for node in on.made.nodes
    ):
        return False
    owner = on.owner
    with contextlib.suppress(OSError, ReplyError):
        return on.serves(owner) and all(
            node.raw("DBSIZE") == 0 for node in on.made.nodes if node is not owner
        )
    return False


def wait_s(seconds: float) -> None:
    """Lets a partition last. The duration is what the test varies, not a wait for a condition."""
    time.sleep(seconds)


# Partitions while replicas follow a primary

SPLITS = (
    ("primary–replica", ""),
    ("primary–etcd", ""),
    ("replica–etcd", ""),
    ("replica–replica", ""),
    ("primary–replica", "the primary is killed"),
    ("replica–replica", "the primary is killed"),
)


def follow_through(on: Bench, pair: str, then: str) -> str:
    """One cell with a primary and two replicas; the pair's name means the first replica."""
    made, primary = on.made, on.owner
    replicas = [node for node in made.nodes if node is not primary]
    one, _, other = pair.partition("–")
    names = {"primary": on.machine(primary), "replica": on.machine(replicas[0]), "etcd": ETCD}
    ends = (names[one], on.machine(replicas[1]) if pair == "replica–replica" else names[other])
    with on.probed(wait=1) as works:
        mine = works[made.nodes.index(primary)]
        made.until(lambda: mine.last_taken)
        with on.network.parted(ends):
            parted = time.monotonic()
            if then or pair == "primary–etcd":
                if then:
                    taken = mine.last_taken
                    # Data that one replica lacks and the other has.
                    made.until(lambda: mine.last_taken > taken + 0.5)
                    primary.kill()
                made.until(lambda: primary.id not in on.leaseholders())
                made.until(lambda: on.owner is not primary and on.serves(on.owner))
            else:
                wait_s(TIMEOUT_S)
            new = on.owner
            late = mine.last_taken > parted + TIMEOUT_S and pair == "primary–etcd"
        if then:
            primary.start().ready()
        made.until(lambda: followed(on))
    if late:
        return f"{primary.name} took a write later than its lease may have lasted"
    if pair == "primary–replica" and then and new is not replicas[1]:
        return f"{new.name} was chosen, and {replicas[1].name} was further"
    if not then and pair != "primary–etcd" and new is not primary:
        return f"{new.name} was chosen, and {primary.name} was there"
    if wrong := on.check(works):
        return wrong
    made.until(lambda: followed(on))
    held = on.contents(on.owner)
    for node in made.nodes:
        if on.contents(node) != held:
            return f"{node.name} does not hold what {on.owner.name} does"
    return ""


def followed(on: Bench) -> bool:
    """True if every other node follows the owner and has its data."""
    with contextlib.suppress(OSError, ReplyError), RespConnection(on.owner.host, on.owner.port) as wire:
        wire.run("SET", "probe", "1")
        return bool(wire.run("WAIT", 2, 1000) == 2)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description="The partition matrix of migrations and failovers.")
    parser.add_argument("--only", default="", metavar="ROW", help='this row alone, "together" or "replicas"')
    only = parser.parse_args().only
    verdicts = Verdicts()
    cell = verdicts.cell
    rows = [phase for phase in PHASES if not only or only == phase]
    if rows:
        print(f"{'parted at':<12}" + "".join(f"{pair:>15}" for pair in PAIRS), flush=True)
    for phase in rows:
        with tempfile.TemporaryDirectory() as name, bench(Path(name)) as on:
            print(f"{phase:<12}", end="", flush=True)
            for pair in PAIRS:
                cell(f"{phase} × {pair}", 15, partial(move_through, on, phase, pair))
            print(flush=True)
    if not only or only == "together":
        with tempfile.TemporaryDirectory() as name, bench(Path(name), together=True) as on:
            print(f"{'nodes of one machine, whose messages get lost':<50}{'source–target':>15}", flush=True)
            for phase in PHASES[1:]:
                print(f"{phase:<50}", end="", flush=True)
                cell(f"{phase} × messages", 15, partial(move_through, on, phase, "source–target"))
                print(flush=True)
            print(f"{'and nobody is parted: by shared memory':<50}", end="")
            cell("by shared memory", 15, partial(move_by_shared_memory, on))
            print(flush=True)
    if not only or only == "replicas":
        with tempfile.TemporaryDirectory() as name, bench(Path(name), replicas=2) as on:
            for pair, then in SPLITS:
                print(f"{pair + (', ' if then else '') + then:<40}", end="", flush=True)
                cell(f"{pair} {then}", 8, partial(follow_through, on, pair, then))
                print(flush=True)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
