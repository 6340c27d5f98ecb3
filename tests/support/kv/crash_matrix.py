"""The crash matrix: moves slots under load, kills the source, target or coordinator with SIGKILL at a
checkpoint or at a random instant, restarts it, and then checks every key.

    python tests/support/kv/crash_matrix.py                   every checkpoint and every victim, as a table
    python tests/support/kv/crash_matrix.py --random 200      also 200 random instants
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.kv.cluster import MAIN, Cluster, Node, ReplyError, RespConnection, cluster
from support.kv.linearizable import Operation, fault
from support.rdma.verdicts import Verdicts
from verbena.shards.stores import open_store

CHECKPOINTS = ("PREPARED", "BASE_COPY", "CATCH_UP", "CUT_OVER", "DECIDING", "MOVED", "DONE")
VICTIMS = ("source", "target", "coordinator")
DEEDS = (*VICTIMS, "SIGINT", "abort")  # the last two interrupt or abort the move and kill no node
STRIKE = (sys.executable, "-S", str(Path(__file__).with_name("strike.py")))
STOPPING = (sys.executable, str(Path(__file__).with_name("stopping.py")))
SLOTS = "0-8191"
KEYS = 400
LONG = 1500  # keys with values of 8 KiB, in pieces of 16 KiB, so that a copy takes some time
OPTIONS = ("--cluster-node-timeout-ms", "30000", "--cluster-write-pause-budget-ms", "5000")


@dataclass
class Writer:
    """Writes and reads keys at their owners, and records each operation with its times."""

    made: Cluster
    seed: int
    keys: list[bytes]
    history: dict[bytes, list[Operation]] = field(default_factory=dict)
    writes: int = 0

    def __post_init__(self) -> None:
        self._wires: dict[int, RespConnection] = {}
        self._stop = threading.Event()
        self._random = random.Random(self.seed)
        self._thread = threading.Thread(target=self._run)
        self._where: dict[bytes, int] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        for wire in self._wires.values():
            wire.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            key = self._random.choice(self.keys)
            if self._random.random() < 0.7:
                self.writes += 1
                self._note(key, "write", b"%d.%d" % (self.seed, self.writes))
            else:
                self._note(key, "read", None)

    def _note(self, key: bytes, kind: str, value: bytes | None) -> None:
        called = time.monotonic()
        answer, known = self._ask(key, *((b"SET", key, value) if kind == "write" else (b"GET", key)))
        returned = time.monotonic() if known else math.inf
        if kind == "read":
            value = answer
        self.history.setdefault(key, []).append(Operation(kind, value, called, returned))

    def _ask(self, key: bytes, *words: bytes | None) -> tuple[bytes | None, bool]:
        """The answer, and whether the outcome is known."""
        port = self._where.get(key, self.made[0].port)
        while True:
            try:
                wire = self._wires.get(port)
                if wire is None:
                    wire = self._wires[port] = RespConnection("127.0.0.1", port, timeout_s=30)
                return wire.run(*words), True
            except ReplyError as error:
                code, *rest = str(error).split()
                if code == "MOVED":
                    port = int(rest[1].rpartition(":")[2])
                    self._where[key] = port
                elif code not in ("LOADING", "CLUSTERDOWN", "TRYAGAIN"):
                    raise
                if self._stop.is_set():
                    return None, False
            except OSError:
                lost = self._wires.pop(port, None)
                if lost is not None:
                    lost.close()
                    return None, False  # the command may have been executed
                if self._stop.is_set():
                    return None, False
                time.sleep(0.01)  # connection refused: nothing was sent


@contextmanager
def under_load(
    folder: Path, *, stop_at: str = "", writers: int = 2
) -> Iterator[tuple[Cluster, list[Writer]]]:
    """Two nodes, of which the first has all slots, with keys of every type and clients under load."""
    (folder / "stop_at").write_text(stop_at)
    environment = {"STOP_FOLDER": str(folder), "VERBENA_SHARDS_RDMA_MAX_SEND_SIZE": "16KiB"}
    with cluster(folder, 2, assign=False, command=STOPPING, environment=environment, options=OPTIONS) as made:
        assert made[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
        made.until(lambda: b"cluster_state:ok" in made[1].raw("CLUSTER", "INFO"))
        with RespConnection("127.0.0.1", made[0].port) as wire:
            for number in range(KEYS):
                wire.run("SET", f"still:{number}", "x" * number)
                wire.run("RPUSH", f"list:{number}", number, "b", "c")
            for number in range(LONG):
                wire.run("SET", f"long:{number}", long_value(number))
        works = [
            Writer(made, seed, [b"w%d:%d" % (seed, number) for number in range(40)])
            for seed in range(writers)
        ]
        for one in works:
            one.start()
        try:
            yield made, works
        finally:
            for one in works:
                one.stop()


def long_value(number: int) -> bytes:
    return b"%08d" % number * 1024


def contents(node: Node) -> dict[bytes, object]:
    found: dict[bytes, object] = {}
    with RespConnection("127.0.0.1", node.port) as wire:
        cursor = b"0"
        while True:
            cursor, keys = wire.run("SCAN", cursor, "COUNT", 1000)
            for key in keys:
                with suppress(ReplyError):
                    found[key] = (
                        wire.run("LRANGE", key, 0, -1) if key.startswith(b"list") else wire.run("GET", key)
                    )
            if cursor == b"0":
                return found


def check(made: Cluster, works: list[Writer]) -> str:
    """Checks that every key is at one place with the expected value. Returns what is wrong, or an empty
    string."""
    held = [contents(node) for node in made.nodes]
    both = held[0].keys() & held[1].keys()
    if both:
        return f"{len(both)} keys are in two places, such as {sorted(both)[0]!r}"
    everything = held[0] | held[1]
    for number in range(KEYS):
        if everything.get(b"still:%d" % number) != b"x" * number:
            return f"still:{number} is lost or changed"
        if everything.get(b"list:%d" % number) != [b"%d" % number, b"b", b"c"]:
            return f"list:{number} is {everything.get(b'list:%d' % number)!r}"
    for number in range(LONG):
        if everything.get(b"long:%d" % number) != long_value(number):
            return f"long:{number} is lost or changed"
    now = time.monotonic()
    for one in works:
        for key, history in one.history.items():
            last = Operation("read", everything.get(key), now, now + 1)
            if wrong := fault([*history, last]):
                return f"{key!r}: {wrong}"
    if not all(one.writes for one in works):
        return "nobody wrote"
    return ""


def at_rest(made: Cluster) -> bool:
    """True if the map's store contains no move. Nodes may not have received the latest map yet."""

    async def read() -> bool:
        store = open_store(made.store)
        try:
            return not (await store.load()).map.moves
        finally:
            await store.close()

    return asyncio.run(read())


def coordinator(made: Cluster) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*MAIN, "shards", "move", SLOTS, "n1", "--cluster-map-store", made.store],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def abort(made: Cluster) -> subprocess.Popen[bytes]:
    """Starts a command that aborts the present move, if the map has one. The move is read before this
    returns."""

    async def flag() -> str:
        store = open_store(made.store)
        try:
            moves = (await store.load()).map.moves
            return next(iter(moves), "none")
        finally:
            await store.close()

    return subprocess.Popen(
        [*MAIN, "shards", "abort", asyncio.run(flag()), "--cluster-map-store", made.store],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def crash_at(checkpoint: str, victim: str) -> str:
    """Runs one cell of the matrix. Returns what is wrong, or an empty string."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with under_load(folder, stop_at=checkpoint) as (made, works):
            moving = coordinator(made)
            try:
                made.until((folder / "stopped").exists)
                who = {"source": made[0], "target": made[1]}.get(victim)
                aborting = None
                if who is not None:
                    who.kill()
                elif victim == "abort":
                    aborting = abort(made)
                else:
                    moving.send_signal(signal.SIGINT if victim == "SIGINT" else signal.SIGKILL)
                (folder / "go").touch()
                if aborting is not None and (status := aborting.wait(60)) not in (0, 1):
                    return f"abort ended with {status}"
                if victim == "SIGINT" and (status := moving.wait(60)) not in (130, -signal.SIGINT):
                    return f"the interrupted command ended with {status}"
                if who is not None:
                    who.start().ready()
                made.until(lambda: at_rest(made))
                made.until(lambda: settled(made))
            finally:
                moving.kill()
                moving.wait()
            before = [one.writes for one in works]
            made.until(lambda: all(one.writes > then + 5 for one, then in zip(works, before, strict=True)))
            for one in works:
                one.stop()
            return check(made, works)


def settled(made: Cluster) -> bool:
    """True if no checkpoint is left: every move has been finished or undone."""
    return not any(
        list((node.folder / node.name / "cluster" / "moves").glob("*.checkpoint")) for node in made.nodes
    )


def traced(folder: Path) -> list[tuple[float, str]]:
    """The checkpoints that have been written or removed so far, with their times."""
    try:
        lines = (folder / "trace").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(float(moment), phase) for moment, phase in (line.split() for line in lines)]


@dataclass(frozen=True)
class Instant:
    """When to kill: `delay_s` after the coordinator was started (`after` is empty), after the move was
    entered into the map, or after a checkpoint was written. `twice`: kills again, this many seconds later,
    during recovery."""

    victim: str
    after: str
    delay_s: float
    twice: float | None

    @classmethod
    def drawn(cls, seed: int) -> Instant:
        """Draws a random instant. Half of them closely follow a checkpoint, because the last phases take
        milliseconds."""
        chosen = random.Random(seed)
        victim = chosen.choice(VICTIMS)
        twice = chosen.uniform(0.0, 1.5) if victim != "coordinator" and chosen.random() < 0.2 else None
        if chosen.random() < 0.5:
            return cls(victim, chosen.choice(CHECKPOINTS), chosen.expovariate(1 / 0.001), twice)
        after = chosen.choice(("", "map", "map", "map"))
        return cls(victim, after, chosen.uniform(0.0, 1.0), twice)

    def strike(self, made: Cluster, folder: Path, moving: subprocess.Popen[bytes]) -> float:
        """Kills the victim and returns the time. The delay is what the test varies, not a wait for a
        condition."""
        found = {"source": made[0].process, "target": made[1].process}.get(self.victim, moving)
        assert found is not None
        if self.after in CHECKPOINTS:
            command = [*STRIKE, str(folder), self.after, str(self.delay_s), str(found.pid)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (
                f"no move came to {self.after}, or the victim was gone: {done.stderr}"
            )
            found.wait()
            return float(done.stdout)
        if self.after:
            made.until(lambda: not at_rest(made) or moving.poll() is not None)
        time.sleep(self.delay_s)
        struck = time.monotonic()
        found.kill()
        found.wait()
        return struck

    def __str__(self) -> str:
        again = "" if self.twice is None else f", again {self.twice:.3f} s later"
        return f"{self.victim} {self.delay_s:.4f} s after {self.after or 'the start'}{again}"


def crash_somewhen(seed: int, hits: Counter[tuple[str, str]]) -> str:
    """Crashes at a random instant. Returns what is wrong, or an empty string. `hits` counts phase and
    victim."""
    instant = Instant.drawn(seed)
    with tempfile.TemporaryDirectory() as name, under_load(Path(name)) as (made, works):
        folder = Path(name)
        moving = coordinator(made)
        try:
            struck = instant.strike(made, folder, moving)
            who = {"source": made[0], "target": made[1]}.get(instant.victim)
            if who is not None:
                who.start()
                if instant.twice is not None:
                    time.sleep(instant.twice)
                    who.kill()
                    who.start()
                who.ready()
            made.until(lambda: at_rest(made) and settled(made))
        finally:
            moving.kill()
            moving.wait()
        # A coordinator that started late may have begun its move just before it was killed: wait again.
        made.until(lambda: at_rest(made) and settled(made))
        for one in works:
            one.stop()
        wrong = check(made, works)
        phase = ([phase for moment, phase in traced(folder) if moment <= struck] or ["no move"])[-1]
        hits[phase, instant.victim] += 1
        return f"{instant}, at {phase}: {wrong}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="The crash matrix of migrations.")
    parser.add_argument(
        "--random", type=int, default=0, metavar="N", help="crash at so many random instants, too"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first of them")
    parser.add_argument("--only", default="", metavar="CHECKPOINT", help="this row alone; none: no row")
    options = parser.parse_args()
    verdicts = Verdicts()
    print(f"{'checkpoint':<12}" + "".join(f"{deed:>13}" for deed in DEEDS), flush=True)
    for checkpoint in CHECKPOINTS:
        if options.only and options.only != checkpoint:
            continue
        print(f"{checkpoint:<12}", end="", flush=True)
        for victim in DEEDS:
            verdicts.cell(f"{checkpoint} × {victim}", 13, partial(crash_at, checkpoint, victim))
        print(flush=True)
    hits: Counter[tuple[str, str]] = Counter()
    for number in range(options.random):
        verdicts.judge(f"seed {options.seed + number}", partial(crash_somewhen, options.seed + number, hits))
        print(f"\r{number + 1} random instants, {len(verdicts.failures)} failures", end="", flush=True)
    if options.random:
        print("\n" + f"{'hit at':<12}" + "".join(f"{victim:>13}" for victim in VICTIMS))
        for phase in ("no move", *CHECKPOINTS, "ROLLED_BACK", "over"):
            print(f"{phase:<12}" + "".join(f"{hits[phase, victim]:>13}" for victim in VICTIMS))
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
