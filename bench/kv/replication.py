"""What does a replica cost its primary, and how far is it behind?"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure, program
from bench.host import calmest
from verbena.cli import text

PAIRS = 15  # pairs of turns without and with a replica: speed drifts, but equally for two neighbours
LEAST_THROUGHPUT = 0.85
MAX_LAG_S = 1e-3
USE_S, USE_EVERY_S = 9, 0.01  # a replica reports its lag over the last eight seconds
ROUNDS, PROBES = 5, 400
TRIES, CALM = 4, 0.005
LOOKS_S = 0.2e-3  # the polling interval of a replica with clients
WRITES = ("-t", "set", "-r", "100000", "-d", "64", "-q")
WRITES_PER_S = 20_000
LOADS = (
    ("idle", ()),
    ("under writes of one client", ("-c", "1")),
    (f"under {WRITES_PER_S:,} writes a second", None),
    ("under writes of 20 clients, as fast as they can", ("-c", "20")),
    ("under pipelines of 16 writes of 20 clients, as fast as they can", ("-c", "20", "-P", "16")),
)


@dataclass(frozen=True)
class Store:
    port: int
    pid: int

    def threads_ns(self) -> dict[str, int]:
        """CPU time of each thread in nanoseconds."""
        found = {}
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                found[thread.name] = int((thread / "schedstat").read_text().split()[0])
        return found


@dataclass(frozen=True)
class Load:
    """The rate that redis-benchmark reports, and the CPU time per SET of client and stores, in µs."""

    rate: float
    client_us: float
    stores_us: list[float]
    engine_us: float  # the first store's busiest thread, which is the engine's


@contextlib.contextmanager
def store(*flags: str) -> Iterator[Store]:
    """Runs `verbena serve` as a process."""
    command = [sys.executable, "-m", "verbena", "serve", "--kv-port=0", "--session-listen-port=0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip().startswith("redis"):
                    port = int(line.split()[1].rpartition(":")[2])
                if line.startswith("try:"):
                    break
            yield Store(port, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()


class Client:
    """A minimal RESP client."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, *words: str) -> bytes:
        """Sends a command; returns the raw reply, which must fit into one read."""
        raw = [word.encode() for word in words]
        self.socket.sendall(
            b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)
        )
        return self.socket.recv(1 << 16)


def load(stores: list[Store], seconds: float, *, pipeline: int, clients: int = 20) -> Load:
    """Runs SETs against the first store with redis-benchmark, for about `seconds`."""
    count = int((60_000 if pipeline == 1 else 1_000_000) * seconds)
    command = ["redis-benchmark", "-p", str(stores[0].port), *WRITES]
    command += ["-c", str(clients), "-P", str(pipeline), "-n", str(count)]
    before, used = [store.threads_ns() for store in stores], resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = [
        [ns - earlier.get(thread, 0) for thread, ns in store.threads_ns().items()]
        for store, earlier in zip(stores, before, strict=True)
    ]
    found = re.findall(r"SET: ([0-9.]+) requests per second", done.stdout.replace("\r", "\n"))
    client_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return Load(
        rate=float(found[-1]),
        client_us=client_s * 1e6 / count,
        stores_us=[sum(threads) / 1e3 / count for threads in spent],
        engine_us=max(spent[0]) / 1e3 / count,
    )


def throughput(name: str, pairs: list[tuple[Load, Load]]) -> list[Figure]:
    """Reports the primary's rate and its causes; client, primary and replica share one machine's cores."""
    ratios = sorted(after.rate / before.rate for before, after in pairs)
    ratio = statistics.median(ratios)
    # The pair closest to the median.
    before, after = min(pairs, key=lambda pair: abs(pair[1].rate / pair[0].rate - ratio))
    cores = os.cpu_count() or 1
    most = [cores * 1e6 / (load.client_us + sum(load.stores_us)) for load in (before, after)]
    reached = min(before.rate, most[0])  # without a replica, one thread per process does not use all cores
    return [
        Figure(
            name,
            f"{after.rate:,.0f}/s",
            f"{before.rate:,.0f}/s without",
            f"{ratio:.2f}× ({ratios[0]:.2f}–{ratios[-1]:.2f})",
            f"≥ {LEAST_THROUGHPUT}×",
            ratio >= LEAST_THROUGHPUT,
        ),
        Figure(
            f"{name}: a SET's CPU, client + primary + replica",
            " + ".join(f"{us:.2f}" for us in (after.client_us, *after.stores_us)) + " µs",
            " + ".join(f"{us:.2f}" for us in (before.client_us, *before.stores_us)) + " µs",
            "–",
        ),
        Figure(
            f"{name}: if its {cores} cores were never idle",
            f"{most[1]:,.0f}/s",
            f"{reached:,.0f}/s without",
            f"{most[1] / reached:.2f}×",
        ),
        Figure(
            f"{name}: the engine's thread, with a core for each other thread",
            f"{after.engine_us:.3f} µs a SET",
            f"{before.engine_us:.3f} µs without",
            f"{before.engine_us / after.engine_us:.2f}×",
        ),
    ]


def follow(replica: int, primary: int) -> None:
    client = Client(replica)
    client.run("REPLICAOF", "127.0.0.1", str(primary))
    while b"master_link_status:up" not in client.run("INFO", "replication"):
        time.sleep(0.01)


class Lags(NamedTuple):
    """P99 in seconds."""

    reported: float  # of all pieces of the log, as a replica in use reports it
    seen: float  # as a client of both stores sees it
    get: float  # a GET by that client from the primary, without replication
    look: float  # the delay of a program that only polls


def lag(name: str, primary: int, replica: int) -> list[Figure]:
    """Measures lag while the host takes little processor time away; it takes milliseconds at a time."""
    lags, taken = calmest(lambda: _lags(primary, replica), tries=TRIES, enough=CALM)
    return [
        Figure(
            f"{name}: of all pieces of the log, by its own INFO",
            text.duration(lags.reported * 1e9),
            f"a program that only looks {text.duration(lags.look * 1e9)}; "
            f"the host took {taken:.1%} of the processors away",
            f"{lags.reported / lags.look:.1f}×",
            f"≤ {text.duration(MAX_LAG_S * 1e9)}",
            lags.reported <= MAX_LAG_S,
        ),
        Figure(
            f"{name}: of probes, by a client of both",
            text.duration(lags.seen * 1e9),
            f"a GET from the primary {text.duration(lags.get * 1e9)}",
            f"{lags.seen / lags.get:.1f}×",
        ),
    ]


def _lags(primary: int, replica: int) -> Lags:
    reported = use(primary, replica)
    seen: list[float] = []
    get: list[float] = []
    look: list[float] = []
    for _ in range(ROUNDS):
        seen += probes(primary, replica)
        get += probes(primary, primary)
        look += looks()
    return Lags(reported, *(sorted(times)[int(len(times) * 0.99)] for times in (seen, get, look)))


def use(primary: int, replica: int) -> float:
    """Writes and reads a hundred times per second; then returns the replica's reported lag (P99) in
    seconds."""
    writer, reader, until = Client(primary), Client(replica), time.perf_counter() + USE_S
    while time.perf_counter() < until:
        writer.run("SET", "probe", "")
        reader.run("GET", "probe")
        time.sleep(USE_EVERY_S)
    field = re.search(rb"replica_lag_p99_us:(\d+)", reader.run("INFO", "replication"))
    assert field is not None, "it is no longer a replica"
    return int(field[1]) / 1e6


def probes(primary: int, replica: int) -> list[float]:
    """Seconds from the primary's reply until the replica has the value, as a client of both sees it."""
    writer, reader = Client(primary), Client(replica)
    return [_probe(writer, reader, f"{probe:08d}") for probe in range(PROBES)]


def _probe(writer: Client, reader: Client, value: str) -> float:
    writer.run("SET", "probe", value)
    began = time.perf_counter()
    while value.encode() not in reader.run("GET", "probe"):
        pass
    return time.perf_counter() - began


def looks() -> Iterator[float]:
    """The delays of a program that polls as often as a replica, for arrivals at any moment."""
    for _ in range(PROBES):
        began = time.perf_counter()
        time.sleep(LOOKS_S)
        took = time.perf_counter() - began
        yield from (took - came * 1e-5 for came in range(int(took * 1e5)))


def turns(alone: Store, primary: Store, replica: Store, seconds: float, pipeline: int) -> tuple[Load, Load]:
    return (
        load([alone], seconds, pipeline=pipeline),
        load([primary, replica], seconds, pipeline=pipeline),
    )


def write_steadily(port: int) -> None:
    """One client that sends 20 SETs per millisecond, until its process is terminated."""
    client, bunch = Client(port), WRITES_PER_S // 1000
    began, done = time.perf_counter(), 0
    while True:
        words = [
            f"*3\r\n$3\r\nSET\r\n$5\r\n{(done + i) % 100_000:05d}\r\n$64\r\n{'x' * 64}\r\n"
            for i in range(bunch)
        ]
        client.socket.sendall("".join(words).encode())
        replies = 0
        while replies < bunch:
            replies += client.socket.recv(1 << 16).count(b"\n")
        done += bunch
        time.sleep(max(0.0, began + done / WRITES_PER_S - time.perf_counter()))


@contextlib.contextmanager
def writing(port: int, flags: tuple[str, ...] | None) -> Iterator[None]:
    """Runs writes during the block: redis-benchmark with these flags, a steady rate if None, nothing if
    empty."""
    if flags is None:
        steady = multiprocessing.get_context("spawn").Process(
            target=write_steadily, args=(port,), daemon=True
        )
        steady.start()
        try:
            yield
        finally:
            steady.terminate()
            steady.join()
    elif flags:
        command = ["redis-benchmark", "-p", str(port), *WRITES, "-l", *flags]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as writer:
            try:
                yield
            finally:
                writer.terminate()
    else:
        yield


def measure(options: argparse.Namespace) -> list[Figure]:
    if shutil.which("redis-benchmark") is None:
        raise SystemExit("redis-benchmark is missing: apt-get install redis-tools")
    flags = (
        f"--network-rdma-busy-poll-us={options.busy_poll_us}",
        f"--kv-busy-poll-us={options.busy_poll_us}",
    )
    figures = []
    with store(*flags) as alone, store(*flags) as primary, store(*flags) as replica:
        follow(replica.port, primary.port)
        for pipeline in (16, 1):
            pairs = [turns(alone, primary, replica, options.seconds / 4, pipeline) for _ in range(PAIRS)]
            figures += throughput(f"SETs with one replica by WRITE (shm), pipeline {pipeline}", pairs)
        for name, flood in LOADS:
            with writing(primary.port, flood):
                figures += lag(f"replica's lag P99, {name}", primary.port, replica.port)
    figures.append(Figure("load of the machine, 1 min", f"{os.getloadavg()[0]:.1f}", "–", "–"))
    return figures


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--busy-poll-us",
        type=int,
        default=0,
        help="how long nodes and stores spin (default: 0, for few cores)",
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=_arguments)
