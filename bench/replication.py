"""What does a replica cost its primary, and how far is it behind?"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from figure import Figure, program

from verbena.cli import text

ROUNDS = 3
LEAST_THROUGHPUT = 0.85
MOST_LAG_S = 1e-3
PROBES = 1000


@contextlib.contextmanager
def store(*flags: str) -> Iterator[int]:
    """`verbena serve` as a process of its own: its port."""
    command = [sys.executable, "-m", "verbena.cli", "serve", "--kv-port=0", "--session-listen-port=0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip().startswith("redis"):
                    port = int(line.split()[1].rpartition(":")[2])
                if line.startswith("try:"):
                    break
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()


class Client:
    """RESP by hand."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, *words: str) -> bytes:
        """The reply as it came; good for short ones."""
        raw = [word.encode() for word in words]
        self.socket.sendall(
            b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)
        )
        return self.socket.recv(1 << 16)


def load(port: int, seconds: float, *, pipeline: int, clients: int = 20) -> float:
    """SETs a second by redis-benchmark."""
    rate = 20_000 if pipeline == 1 else 200_000
    command = ["redis-benchmark", "-p", str(port), "-t", "set", "-r", "100000", "-d", "64", "-q"]
    command += ["-c", str(clients), "-P", str(pipeline), "-n", str(int(rate * seconds))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"SET: ([0-9.]+) requests per second", done.stdout.replace("\r", "\n"))
    return float(found[-1])


def follow(replica: int, primary: int) -> None:
    client = Client(replica)
    client.run("REPLICAOF", "127.0.0.1", str(primary))
    while b"master_link_status:up" not in client.run("INFO", "replication"):
        time.sleep(0.01)


def lags(primary: int, replica: int) -> list[float]:
    """From the primary's reply until the replica has the value, as a client of both sees it."""
    writer, reader = Client(primary), Client(replica)
    found = []
    for i in range(PROBES):
        value = f"{i:08d}"
        writer.run("SET", "probe", value)
        began = time.perf_counter()
        while value.encode() not in reader.run("GET", "probe"):
            pass
        found.append(time.perf_counter() - began)
    return sorted(found)


def measure(options: argparse.Namespace) -> list[Figure]:
    if shutil.which("redis-benchmark") is None:
        raise SystemExit("redis-benchmark is missing: apt-get install redis-tools")
    flags = (f"--network-rdma-busy-poll-us={options.busy_poll_us}",)
    figures = []
    with store(*flags) as alone, store(*flags) as primary, store(*flags) as replica:
        follow(replica, primary)
        for pipeline in (16, 1):
            rates: dict[str, list[float]] = {"alone": [], "followed": []}
            for _ in range(ROUNDS):
                rates["alone"].append(load(alone, options.seconds / 2, pipeline=pipeline))
                rates["followed"].append(load(primary, options.seconds / 2, pipeline=pipeline))
            before, after = (statistics.median(rates[name]) for name in ("alone", "followed"))
            figures.append(
                Figure(
                    f"SETs with one replica by WRITE (shm), pipeline {pipeline}",
                    f"{after:,.0f}/s",
                    f"{before:,.0f}/s without",
                    f"{after / before:.2f}×",
                    f"≥ {LEAST_THROUGHPUT}×",
                    after / before >= LEAST_THROUGHPUT,
                )
            )
        command = ["redis-benchmark", "-p", str(primary), "-t", "set", "-r", "100000", "-d", "64", "-q"]
        for name, busy in (("idle", False), ("under writes of one client", True)):
            writer = None
            if busy:
                writer = subprocess.Popen([*command, "-c", "1", "-l"], stdout=subprocess.DEVNULL)
            try:
                found = lags(primary, replica)
            finally:
                if writer is not None:
                    writer.terminate()
                    writer.wait()
            half, most = found[len(found) // 2], found[int(len(found) * 0.99)]
            figures.append(
                Figure(
                    f"replica's lag P99, {name}",
                    text.duration(most * 1e9),
                    f"P50 {text.duration(half * 1e9)}",
                    "–",
                    f"≤ {text.duration(MOST_LAG_S * 1e9)}",
                    most <= MOST_LAG_S,
                )
            )
    figures.append(Figure("load of the machine, 1 min", f"{os.getloadavg()[0]:.1f}", "–", "–"))
    return figures


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--busy-poll-us", type=int, default=0, help="how long the nodes spin (default: 0, for few cores)"
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=_arguments)
