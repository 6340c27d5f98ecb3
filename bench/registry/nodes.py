"""Blobs from registry node to registry node beside HTTP between docker-registry-like ones: curl from the
distribution's docker-registry into a file, then sha256sum of it. Both verify; ours also commits to disk.
In shared memory by default: the question is what moving costs, not the disk."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, program
from bench.registry.server import MIB, Server, digest_of, push, theirs

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.registry.processes import NodeProcess, Processes

BLOB = 256 * MIB
SMALL = 64 << 10
SMALL_COUNT = 100
ROUNDS = 5
NODES = 16
GIB = 1 << 30


def cpu_s(nodes: list[NodeProcess]) -> float:
    """CPU time of all these nodes until now."""
    return float(sum(node.ask("figures")["cpu_s"] for node in nodes))


def push_files(node: NodeProcess, files: list[Path]) -> None:
    for file in files:
        node.ask("push_file", file=str(file), repository="bench")


def fetch(node: NodeProcess, digest: str) -> float:
    """Seconds until the blob is verified and stored."""
    return float(node.ask("fetch", digest=digest, repository="bench")["seconds"])


@contextlib.contextmanager
def cluster(folder: Path, count: int, wires: list[str]) -> Iterator[list[NodeProcess]]:
    with Processes(
        folder / wires[0], wires=wires, piece_timeout_s=60.0, recv_buffer_pool_size=4096
    ) as processes:
        for number in range(count):
            processes.add().ask("peers", count=number)
        yield processes.all


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def curl_and_sum(server: Server, digest: str, file: Path) -> subprocess.Popen[str]:
    """Runs curl and sha256sum in one shell."""
    url = server.url(f"/v2/bench/blobs/{digest}")
    script = f"curl -sf -o {file} {url} && sha256sum {file}"
    return subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)


def check(process: subprocess.Popen[str], digest: str) -> None:
    output, _ = process.communicate()
    if f"sha256:{output.split()[0]}" != digest:
        raise RuntimeError("curl brought something else")


def files_of(folder: Path, count: int, size: int) -> list[Path]:
    made = []
    for number in range(count):
        file = folder / f"blob-{size}-{number}"
        file.write_bytes(os.urandom(size))
        made.append(file)
    return made


def large(folder: Path, server: Server) -> list[Figure]:
    """256 MiB blobs, a different one in each round; the wires and curl alternate."""
    files = files_of(folder, ROUNDS + 1, BLOB)
    names = [digest_of(file) for file in files]
    times: dict[str, list[float]] = {"shm": [], "iwarp": [], "curl": []}
    cpu: dict[str, list[float]] = {"shm": [], "iwarp": [], "curl": []}
    with cluster(folder, 2, ["shm"]) as shm, cluster(folder, 2, ["iwarp"]) as iwarp:
        for nodes in (shm, iwarp):
            push_files(nodes[0], files)
        for file, name in zip(files, names, strict=True):
            push(server, "bench", file, name)
        for name in names:
            for wire, nodes in (("shm", shm), ("iwarp", iwarp)):
                before = cpu_s(nodes)
                times[wire].append(fetch(nodes[1], name))
                cpu[wire].append(cpu_s(nodes) - before)
            target = folder / "curled"
            before, begun = server.cpu_s() + children_cpu_s(), time.perf_counter()
            check(curl_and_sum(server, name, target), name)
            times["curl"].append(time.perf_counter() - begun)
            cpu["curl"].append(server.cpu_s() + children_cpu_s() - before)
            target.unlink()
    for file in files:
        file.unlink()
    speed = {wire: BLOB / MIB / statistics.median(found[1:]) for wire, found in times.items()}
    cost = {wire: statistics.median(found[1:]) / (BLOB / GIB) for wire, found in cpu.items()}
    figures = []
    for wire, bound in (("shm", True), ("iwarp", False)):
        ratio = speed[wire] / speed["curl"]
        figures.append(
            Figure(
                f"256 MiB node to node, {wire}, stored",
                f"{speed[wire]:.0f} MiB/s",
                f"curl + sha256sum {speed['curl']:.0f} MiB/s",
                f"{ratio:.2f}",
                *(("≥ 2", ratio >= 2) if bound else ()),
            )
        )
        ratio = cost[wire] / cost["curl"]
        figures.append(
            Figure(
                f"256 MiB node to node, {wire}, CPU of both ends",
                f"{cost[wire]:.2f} s/GiB",
                f"docker-registry, curl, sha256sum {cost['curl']:.2f} s/GiB",
                f"{ratio:.2f}",
                *(("< 1", ratio < 1) if bound else ()),
            )
        )
    return figures


def small(folder: Path, server: Server) -> list[Figure]:
    """Different blobs of 64 KiB, one after the other."""
    files = files_of(folder, SMALL_COUNT, SMALL)
    names = [digest_of(file) for file in files]
    for file, name in zip(files, names, strict=True):
        push(server, "bench", file, name)
    with cluster(folder, 2, ["shm"]) as nodes:
        push_files(nodes[0], files)
        ours = statistics.median(fetch(nodes[1], name) for name in names)
    curled, kept = [], []
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for name in names:
        begun = time.perf_counter()
        check(curl_and_sum(server, name, folder / "curled"), name)
        curled.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        connection.request("GET", f"/v2/bench/blobs/{name}")
        content = connection.getresponse().read()
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != name:
            raise RuntimeError("the wrong blob")
        (folder / "kept").write_bytes(content)
        kept.append(time.perf_counter() - begun)
    connection.close()
    curl, alive = statistics.median(curled), statistics.median(kept)
    return [
        Figure(
            "64 KiB node to node, shm, stored",
            f"{ours * 1e3:.2f} ms",
            f"curl + sha256sum {curl * 1e3:.2f} ms",
            f"{ours / curl:.2f}",
            "≤ 0.5",
            ours <= 0.5 * curl,
        ),
        Figure(
            "the same beside one kept HTTP connection",
            f"{ours * 1e3:.2f} ms",
            f"http.client, hashed, not committed {alive * 1e3:.2f} ms",
            f"{ours / alive:.2f}",
        ),
    ]


def crowd(folder: Path, server: Server) -> list[Figure]:
    """One node has the blob and 15 others fetch it at once; the baseline is 15 curls from one
    docker-registry."""
    [file] = files_of(folder, 1, BLOB)
    name = digest_of(file)
    push(server, "bench", file, name)
    with cluster(folder, NODES, ["shm"]) as nodes:
        push_files(nodes[0], [file])
        before = cpu_s(nodes)
        begun = time.perf_counter()
        for node in nodes[1:]:
            node.begin("fetch", digest=name, repository="bench")
        for node in nodes[1:]:
            node.answer()
        ours = time.perf_counter() - begun
        figures = [node.ask("figures") for node in nodes]
        ours_cpu = sum(one["cpu_s"] for one in figures) - before
    sent = figures[0]["sent"] / BLOB
    peak = max(one["own_mib"] for one in figures)
    before, begun = server.cpu_s() + children_cpu_s(), time.perf_counter()
    curls = [curl_and_sum(server, name, folder / f"star-{number}") for number in range(NODES - 1)]
    for curl in curls:
        check(curl, name)
    star = time.perf_counter() - begun
    star_cpu = server.cpu_s() + children_cpu_s() - before
    moved = (NODES - 1) * BLOB / GIB
    return [
        Figure(f"{NODES} nodes, 256 MiB, sent by the origin", f"{sent:.2f} blobs",
               f"star {NODES - 1}.00 blobs", f"{sent / (NODES - 1):.2f}", "≤ 2 blobs", sent <= 2),
        Figure(f"{NODES} nodes, 256 MiB, until all have it", f"{ours:.2f} s",
               f"star, curl + sha256sum {star:.2f} s", f"{ours / star:.2f}"),
        Figure(f"{NODES} nodes, 256 MiB, CPU of all", f"{ours_cpu / moved:.2f} s/GiB",
               f"star {star_cpu / moved:.2f} s/GiB", f"{ours_cpu / star_cpu:.2f}"),
        Figure(f"{NODES} nodes, memory of the largest", f"{peak:.0f} MiB", "–", "–",
               "≤ 150 MiB", peak <= 150),
    ]  # fmt: skip


def measure(options: argparse.Namespace) -> list[Figure]:
    if not (shutil.which("docker-registry") and shutil.which("curl")):
        return [Figure("registry nodes", "–", "docker-registry and curl are not installed", "–")]
    figures = []
    for part in (small, large, crowd):
        with contextlib.ExitStack() as stack:
            name = tempfile.TemporaryDirectory(prefix="verbena-bench-", dir=options.folder)
            folder = Path(stack.enter_context(name))
            figures += part(folder, stack.enter_context(theirs(folder)))
    return figures


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default="/dev/shm", help="where all store (default: /dev/shm)")


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
