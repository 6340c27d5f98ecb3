"""Runs ucx_perftest over shared memory and TCP, for comparison with UCX."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence

# Name of the test → arguments. UCT is UCX's bare transport layer, UCP its messaging layer.
TESTS = {
    "UCT am": ("-t", "am_lat", "-d", "memory", "-x", "posix"),
    "UCP am": ("-t", "ucp_am_lat"),
    "UCP tag": ("-t", "tag_lat"),
}
TCP_TESTS = {
    "UCT am": ("-t", "am_lat", "-d", "lo", "-x", "tcp"),
    "UCP am": ("-t", "ucp_am_lat"),
    "UCP tag": ("-t", "tag_lat"),
}
TCP_STREAMS = {"put": ("-t", "ucp_put_bw"), "get": ("-t", "ucp_get")}
STREAM_BYTES = 512 << 20
START_S = 10.0
RUN_S = 60.0


def available() -> bool:
    return shutil.which("ucx_perftest") is not None


def round_trip_ns(test: str, *, size: int, iterations: int, cores: Sequence[int] | None = None) -> float:
    """The median round trip of one run over shared memory: twice the one-way latency that UCX prints."""
    return _median_ns(_run(TESTS[test], "posix,self", size, iterations, cores))


def tcp_round_trip_ns(test: str, *, size: int, iterations: int) -> float:
    """The median round trip of one run over TCP on loopback."""
    return _median_ns(_run(TCP_TESTS[test], "tcp,self", size, iterations))


def tcp_bandwidth(test: str, *, size: int) -> float:
    """Bytes per second of one-sided transfers over TCP on loopback."""
    row = _run(TCP_STREAMS[test], "tcp,self", size, STREAM_BYTES // size)
    return float(row["overall_bw"]) * (1 << 20)


def _median_ns(row: dict[str, str]) -> float:
    return float(row["50.0_percentile_lat"]) * 2 * 1e3


def _run(
    test: Sequence[str], transports: str, size: int, iterations: int, cores: Sequence[int] | None = None
) -> dict[str, str]:
    """Runs one test; returns the last line of its CSV output by column name. Set-up goes over loopback.
    Raises RuntimeError."""
    common = [*test, "-s", str(size), "-n", str(iterations), "-p", str(_free_port()), "-f", "-v"]
    environment = {
        **os.environ,
        "UCX_TLS": transports,
        "UCX_NET_DEVICES": "lo",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
    server_cores = ["-c", str(cores[1])] if cores else []
    client_cores = ["-c", str(cores[0])] if cores else []
    server = subprocess.Popen(
        ["ucx_perftest", *common, *server_cores],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_S
        while True:
            client = subprocess.run(
                ["ucx_perftest", "127.0.0.1", *common, *client_cores],
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
            )
            if client.returncode == 0:
                names, values = (line.split(",") for line in client.stdout.strip().splitlines()[-2:])
                return dict(zip(names, values, strict=False))
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ucx_perftest {' '.join(test)} failed: {client.stderr.strip()}")
            time.sleep(0.1)  # the server is not listening yet
    finally:
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
