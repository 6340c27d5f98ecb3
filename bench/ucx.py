"""UCX's own ping-pong over shared memory (ucx_perftest), for a peer from the field beside our figures."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence

# Name of the test → arguments. The first is UCX's bare transport layer, the others its messaging layer.
TESTS = {
    "UCT am": ("-t", "am_lat", "-d", "memory", "-x", "posix"),
    "UCP am": ("-t", "ucp_am_lat"),
    "UCP tag": ("-t", "tag_lat"),
}
START_S = 10.0
RUN_S = 60.0


def available() -> bool:
    return shutil.which("ucx_perftest") is not None


def round_trip_ns(test: str, *, size: int, iterations: int, cores: Sequence[int] | None = None) -> float:
    """The median round trip of one run: twice the half that UCX prints. Set-up goes over loopback."""
    common = [*TESTS[test], "-s", str(size), "-n", str(iterations), "-p", str(_free_port()), "-f", "-v"]
    environment = {**os.environ, "UCX_TLS": "posix,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
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
                return _median_us(client.stdout) * 2 * 1e3
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ucx_perftest {test} failed: {client.stderr.strip()}")
            time.sleep(0.1)  # the server is not listening yet
    finally:
        server.terminate()
        server.wait()


def _median_us(output: str) -> float:
    """From the CSV: a line of names, then one of values."""
    names, values = (line.split(",") for line in output.strip().splitlines()[-2:])
    return float(values[names.index("50.0_percentile_lat")])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
