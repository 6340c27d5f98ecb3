"""How fast do slots move by shared memory, TCP and QUIC, and how long do commands on them wait?

Two `verbena serve` processes with a cluster map in SQLite. The base copy is what the source reports: bytes
that the target acknowledged, by the time from the first segment to the last acknowledgement. The room for
them, which the target makes beforehand, is not in it: it is the same on every wire. Values have 64 KiB. The
wires take turns, each with two new processes, and a ratio is the median of the turns' ratios: when the
machine becomes slower or faster, it does so for all wires of a turn."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Figure, Ratio, program

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.kv.cluster import MAIN, Cluster, ReplyError, RespConnection, cluster

from verbena import sync, transport
from verbena.cli import text
from verbena.transport import Settings
from verbena.transport.handshake.authority import Authority
from verbena.verbs import QuicOptions, Tls, providers

VALUE = 64 << 10
SEGMENT = 4096
COPY_TURNS = 5
LATENCY_TURNS = 9
PAUSE_BOUND_MS = 20.0
WRITES_PER_S = 20_000
WIRES = {"shm": (), "tcp": ("--cluster-transport", "tcp"), "quic": ("--cluster-transport", "quic")}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=1 << 30, help="how much is copied (default: 1 GiB)")
    parser.add_argument("--moves", type=int, default=20, help="cut-overs under load (default: 20)")


def measure(options: argparse.Namespace) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="verbena-bench-") as name:
        folder = Path(name)
        authority = Authority.create(folder / "tls", days=2)
        issued = authority.issue("bench", ["127.0.0.1", "localhost"], days=1)
        certificates = (str(issued.certificate), str(issued.key), str(authority.certificate))
        wires = [wire for wire in WIRES if wire != "quic" or _quic_is_here()]
        turns = [
            {wire: _copy(folder / f"{wire}{turn}", wire, options.bytes, certificates) for wire in wires}
            for turn in range(COPY_TURNS)
        ]
        figures = []
        for wire, bound in (("tcp", 2.0), ("quic", 5.0)):
            if wire in wires:
                pairs = [(turn["shm"], turn[wire]) for turn in turns]
                own, base = map(statistics.median, zip(*pairs, strict=True))
                ratio = Ratio.of(pairs)
                figures.append(
                    Figure(
                        f"base copy of {text.size(options.bytes)}: shm beside {wire}",
                        text.bandwidth(own),
                        text.bandwidth(base),
                        str(ratio),
                        f"≥ {bound:g}",
                        ratio.median >= bound,
                    )
                )
        if "quic" in wires:
            figures.append(_latency(certificates, options.seconds))
        return [*figures, _pauses(folder, options.moves)]


def _quic_is_here() -> bool:
    return next(info for info in providers() if info.name == "quic").available


def _options(wire: str, certificates: tuple[str, str, str]) -> tuple[str, ...]:
    files = ("--tls-certificate", certificates[0], "--tls-key", certificates[1], "--tls-ca", certificates[2])
    return (*WIRES[wire], *(files if wire == "quic" else ()), "--cluster-write-pause-budget-ms", "10000")


def _copy(place: Path, wire: str, nbytes: int, certificates: tuple[str, str, str]) -> float:
    """Moves all slots from one node to another; returns bytes per second."""
    place.mkdir()
    options = _options(wire, certificates)
    with cluster(place, 2, assign=False, keep=False, options=options) as made:
        made[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        made.until(lambda: b"cluster_state:ok" in made[1].raw("CLUSTER", "INFO"))
        with RespConnection("127.0.0.1", made[0].port) as client:
            body = bytes(VALUE)
            for number in range(nbytes // VALUE):
                client.run("SET", f"key:{number}", body)
        report = _move(made, "0-16383", "n1", *options)
        assert report["moved"], report
        sent = report["bytes_transferred"] + report["fallback_bytes"]
        assert sent >= nbytes, report
        assert (report["wire"] == "shm") == (wire == "shm"), report
        return float(sent / report["copy_s"])


def _move(made: Cluster, slots: str, target: str, *options: str) -> dict[str, Any]:
    command = [*MAIN, "shards", "move", slots, target, "--json", "--cluster-map-store", made.store, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _latency(certificates: tuple[str, str, str], seconds: float) -> Figure:
    """WRITEs of a 4 KiB segment to the peer's memory, over both wires in turn, because the machine's speed
    drifts; medians of the turns."""
    with _segments("shm", certificates) as shm, _segments("quic", certificates) as quic:
        turns = [(shm(seconds / LATENCY_TURNS), quic(seconds / LATENCY_TURNS)) for _ in range(LATENCY_TURNS)]
    fast, slow = (statistics.median(took) for took in zip(*turns, strict=True))
    ratio = statistics.median(one / other for other, one in turns)
    return Figure(
        "segment of 4 KiB: quic beside shm",
        text.duration(slow),
        text.duration(fast),
        f"{ratio:.1f}×",
        "≥ 20×",
        ratio >= 20,
    )


def settings(wire: str, certificates: tuple[str, str, str]) -> Settings:
    certificate, key, authority = certificates
    quic = QuicOptions(tls=Tls(certificate=certificate, key=key, authority=authority))
    return Settings(wires=(wire,), quic=quic if wire == "quic" else None)


@contextmanager
def _segments(wire: str, certificates: tuple[str, str, str]) -> Iterator[Callable[[float], float]]:
    """Starts a peer on a wire; yields a function that WRITEs segments for some seconds and returns the median
    nanoseconds per segment."""
    command = [sys.executable, "-m", "bench.kv.migration_peer", wire, *certificates]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        address, region = peer.stdout.readline().split()
        window, data = transport.RemoteRegion.from_bytes(bytes.fromhex(region)), bytes(SEGMENT)
        with sync.connect(address, wire=wire, config=settings(wire, certificates)) as session:

            def write(seconds: float) -> float:
                took: list[int] = []
                ends = time.perf_counter() + seconds
                while len(took) < 200 or time.perf_counter() < ends:
                    start = time.perf_counter_ns()
                    session.sync.write(window[:SEGMENT], data)
                    took.append(time.perf_counter_ns() - start)
                return statistics.median(took)

            yield write
        peer.communicate()


def _pauses(folder: Path, moves: int) -> Figure:
    """Moves a range back and forth under load; reports the pause that the source measured for each
    cut-over."""
    place = folder / "pauses"
    place.mkdir()
    with cluster(place, 2, keep=False, options=("--cluster-write-pause-budget-ms", "10000")) as made:
        load = _Load(made)
        load.start()
        pauses = []
        try:
            for number in range(moves):
                report = _move(made, "0-4095", f"n{1 - number % 2}")
                assert report["moved"], report
                pauses.append(float(report["pause_ms"]))
        finally:
            load.stop()
    pauses.sort()
    p99 = pauses[min(len(pauses) - 1, int(len(pauses) * 0.99))]
    return Figure(
        f"pause at cut-over, P99 of {moves}, at {text.rate(load.per_second)} writes",
        f"{p99:.1f} ms",
        f"median {statistics.median(pauses):.1f} ms",
        "–",
        f"≤ {PAUSE_BOUND_MS:.0f} ms",
        p99 <= PAUSE_BOUND_MS,
    )


class _Load:
    """Pipelined writes to all slots at a steady rate."""

    def __init__(self, made: Cluster) -> None:
        self._made = made
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._done = 0
        self._began = self._ended = 0.0

    @property
    def per_second(self) -> float:
        return self._done / max(1e-9, self._ended - self._began)

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._ended = time.monotonic()

    def _run(self) -> None:
        wires = [RespConnection("127.0.0.1", node.port) for node in self._made.nodes]
        number = 0
        while not self._stop.is_set():
            due = self._began + self._done / WRITES_PER_S
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            # Each batch goes to both nodes: one serves a key, the other replies with a redirection.
            for wire in wires:
                for offset in range(100):
                    wire.send("SET", f"load:{(number + offset) % 100_000}", number)
                for _ in range(100):
                    try:
                        wire.receive()
                        self._done += 1
                    except ReplyError:
                        continue
            number += 100
        for wire in wires:
            wire.close()


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
