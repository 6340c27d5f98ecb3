"""The registry beside the distribution's docker-registry: pulls, pushes, manifests and memory, in turns,
both on disk. Clients are curl and bare sockets, the same for both; CPU seconds are the server's own."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure, program

MIB = 1 << 20
BLOB = 256 * MIB
SMALL = 16 * MIB
ROUNDS = 3
CLIENTS = 64
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass
class Server:
    """A registry that runs as a process."""

    name: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def url(self, path: str) -> str:
        return path if path.startswith("http") else f"http://127.0.0.1:{self.port}{path}"

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        """Sends a request; returns status and Location."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, spelled)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers.get("Location", "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(name: str, command: list[str], port: int) -> Iterator[Server]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            server = Server(name, port, process.pid)
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError):
                    if server.request("GET", "/v2/")[0] == 200:
                        break
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"{name} did not start")
                time.sleep(0.05)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "verbena", "registry", "--port", str(port)]
    with running("verbena", [*command, "--folder", str(folder / "ours")], port) as server:
        yield server


@contextlib.contextmanager
def theirs(folder: Path) -> Iterator[Server]:
    port = free_port()
    file = folder / "config.yml"
    file.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/theirs}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with running("docker-registry", ["docker-registry", "serve", str(file)], port) as server:
        yield server


def digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


def push(server: Server, repository: str, file: Path, digest: str) -> None:
    """Pushes a blob: POST, then PUT with curl."""
    status, where = server.request("POST", f"/v2/{repository}/blobs/uploads/", b"")
    assert status == 202, status
    mark = "&" if "?" in where else "?"
    url = f"{server.url(where)}{mark}digest={digest}"
    command = ["curl", "-sf", "-o", "/dev/null", "-H", "Content-Type: application/octet-stream"]
    subprocess.run([*command, "-H", "Expect:", "-T", file, url], check=True)


def pull(server: Server, repository: str, digest: str, times: int) -> None:
    url = server.url(f"/v2/{repository}/blobs/{digest}")
    processes = [subprocess.Popen(["curl", "-sf", "-o", "/dev/null", url]) for _ in range(times)]
    statuses = [process.wait() for process in processes]  # wait for all, even after a failure
    if any(statuses):
        raise RuntimeError("a pull failed")


def put_manifest(server: Server, repository: str, tag: str, config: tuple[str, int]) -> None:
    described = {"mediaType": CONFIG, "digest": config[0], "size": config[1]}
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
    body = json.dumps(document).encode()
    status, _ = server.request("PUT", f"/v2/{repository}/manifests/{tag}", body, Content_Type=MANIFEST)
    assert status == 201, status


def ask_on(port: int, path: str, seconds: float) -> int:
    """Counts how many times one client gets a manifest on one connection."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {MANIFEST}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        length = len(_whole(connection))
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(request)
            left = length
            while left:
                got = connection.recv(left)
                if not got:
                    raise RuntimeError("the server closed the connection")
                left -= len(got)
            done += 1
    return done


def _whole(connection: socket.socket) -> bytes:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@dataclass
class Spent:
    seconds: float
    cpu_s: float


def spent(server: Server, work: Callable[[], None]) -> Spent:
    cpu, start = server.cpu_s(), time.monotonic()
    work()
    return Spent(time.monotonic() - start, server.cpu_s() - cpu)


def in_turns(servers: list[Server], work: Callable[[Server, int], None]) -> list[Spent]:
    """Returns each server's medians over alternating rounds; the first round is a discarded warm-up."""
    rounds = [[spent(server, lambda s=server, n=number: work(s, n)) for server in servers]  # type: ignore[misc]
              for number in range(ROUNDS + 1)][1:]  # fmt: skip
    return [
        Spent(
            statistics.median(one.seconds for one in column), statistics.median(one.cpu_s for one in column)
        )
        for column in zip(*rounds, strict=True)
    ]


def transfer(name: str, results: list[Spent], size: int, at_least: float, cpu: float | None) -> list[Figure]:
    speeds = [size / one.seconds / MIB for one in results]
    ratio = speeds[0] / speeds[1]
    figures = [
        Figure(name, f"{speeds[0]:.0f} MiB/s", f"docker-registry {speeds[1]:.0f} MiB/s", f"{ratio:.2f}",
               f"≥ {at_least:g}", ratio >= at_least)
    ]  # fmt: skip
    costs = [one.cpu_s / (size / (1 << 30)) for one in results]
    ratio = costs[0] / costs[1]
    bound = f"≤ {cpu:g}" if cpu is not None else "–"
    kept = ratio <= cpu if cpu is not None else None
    measured, baseline = f"{costs[0]:.2f} s/GiB", f"docker-registry {costs[1]:.2f} s/GiB"
    return [*figures, Figure(f"{name}, server's CPU", measured, baseline, f"{ratio:.2f}", bound, kept)]


def measure(options: argparse.Namespace) -> list[Figure]:
    if not (shutil.which("docker-registry") and shutil.which("curl")):
        return [Figure("registry", "–", "docker-registry and curl are not installed", "–")]
    with tempfile.TemporaryDirectory(prefix="verbena-bench-", dir=options.folder) as name:
        folder = Path(name)
        with ours(folder) as first, theirs(folder) as second:
            return compare([first, second], folder, options.seconds)


def compare(servers: list[Server], folder: Path, seconds: float) -> list[Figure]:
    blob, figures = folder / "blob", []
    blob.write_bytes(os.urandom(BLOB))
    digest = digest_of(blob)

    def put(server: Server, number: int) -> None:
        push(server, f"push/{number}", blob, digest)

    figures += transfer("POST + PUT 256 MiB", in_turns(servers, put), BLOB, 2.0, None)
    for clients in (1, 4):
        results = in_turns(servers, lambda s, n, c=clients: pull(s, "push/0", digest, c))  # type: ignore[misc]
        figures += transfer(f"GET 256 MiB, {clients} at once", results, clients * BLOB, 1.0, 0.7)
    figures.append(manifests(servers, folder, seconds))
    figures.append(memory(servers, folder))
    return figures


def manifests(servers: list[Server], folder: Path, seconds: float) -> Figure:
    config = folder / "config"
    config.write_bytes(b"{}")
    rates = []
    for server in servers:
        push(server, "small", config, digest_of(config))
        put_manifest(server, "small", "latest", (digest_of(config), 2))
        with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            path = "/v2/small/manifests/latest"
            jobs = [pool.submit(ask_on, server.port, path, seconds) for _ in range(2)]
            rates.append(sum(job.result() for job in jobs) / seconds)
    ratio = rates[0] / rates[1]
    baseline = f"docker-registry {rates[1]:.0f}/s"
    return Figure(
        "GET of a manifest, 2 clients", f"{rates[0]:.0f}/s", baseline, f"{ratio:.2f}", "≥ 2", ratio >= 2
    )


def memory(servers: list[Server], folder: Path) -> Figure:
    """Peak memory after 64 concurrent clients push different blobs of 16 MiB and pull them."""
    blob = folder / "small-blob"
    content = bytearray(os.urandom(SMALL))
    files = []
    for number in range(CLIENTS):
        content[:8] = number.to_bytes(8, "big")
        file = folder / f"{blob.name}-{number}"
        file.write_bytes(content)
        files.append((file, digest_of(file)))
    for server in servers:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda one, s=server: push(s, "many", *one), files))  # type: ignore[misc]
            list(pool.map(lambda one, s=server: pull(s, "many", one[1], 1), files))  # type: ignore[misc]
    peaks = [server.peak_mib() for server in servers]
    return Figure(
        f"peak memory, {CLIENTS} clients at once",
        f"{peaks[0]:.0f} MiB",
        f"docker-registry {peaks[1]:.0f} MiB",
        f"{peaks[0] / peaks[1]:.2f}",
        "≤ 150 MiB",
        peaks[0] <= 150,
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default=None, help="where both store (default: the temporary folder)")


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
