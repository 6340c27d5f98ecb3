"""What does a session add to its wire: to a call, to a handler in Python, to a large transfer?"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import verbena
from bench.figure import Figure, program
from verbena._native.transport import METHOD_ECHO
from verbena.cli import text
from verbena.cli.measure import baselines, probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe
from verbena.cli.measure.rounds import Budget, interleave
from verbena.cli.measure.tcp import TcpLatency
from verbena.transport import RemoteRegion, Session, Settings

SIZE = 64
BULK = 1 << 30
TASKS = 64
BATCH = 16  # operations per clock reading, because one takes less than a microsecond


class Server:
    """The peer process."""

    def __init__(self, progress: str, region_bytes: int = 1 << 16) -> None:
        program = Path(__file__).parent / "session_server.py"
        self._process = subprocess.Popen(
            [sys.executable, str(program), progress, str(region_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        address, region, port = self._process.stdout.readline().split()
        self.address = address
        self.region = RemoteRegion.from_bytes(bytes.fromhex(region))
        self.stream_port = int(port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class BlockingCall(Probe):
    """Blocking session.call of a native echo. A sample is the mean of `batch` calls, because reading the
    clock from Python takes about a tenth of a call."""

    least = 1000

    def __init__(self, server: Server, wire: str, *, batch: int = 1) -> None:
        self._session = verbena.sync.connect(server.address, wire=wire, config=Settings())
        self._batch = batch

    def run(self, count: int) -> Sequence[float]:
        call, payload, clock = self._session._native.call, bytes(SIZE), time.perf_counter_ns
        samples, batch = array("d"), range(self._batch)
        for _ in range(-(-count // self._batch)):
            start = clock()
            for _ in batch:
                call(METHOD_ECHO, payload, -1.0)
            samples.append((clock() - start) / self._batch)
        return samples

    def close(self) -> None:
        self._session.close()


class Bulk(Probe):
    """write() of a large buffer, with verified checksums; bytes per second."""

    least = 1

    def __init__(self, server: Server, wire: str, data: bytearray) -> None:
        self._session = verbena.sync.connect(server.address, wire=wire, config=Settings())
        self._remote, self._data = server.region, data

    def run(self, count: int) -> Sequence[float]:
        samples = []
        for _ in range(count):
            start = time.perf_counter()
            self._session.sync.write(self._remote, self._data)
            samples.append(len(self._data) / (time.perf_counter() - start))
        return samples

    def close(self) -> None:
        self._session.close()


def measure(options: argparse.Namespace) -> list[Figure]:
    return [*_calls(options.seconds), *_handlers(options.seconds), *_bulk(options.seconds)]


def _calls(seconds: float) -> list[Figure]:
    with (
        Server("native") as server,
        Peer("shm") as peer,
        probes.latency(peer, "shm", "send", "native", SIZE, batch=BATCH) as verbs,
        BlockingCall(server, "shm", batch=BATCH) as subject,
    ):
        bare, call = interleave([verbs, subject], Budget(seconds=seconds))
    figures = [_ratio("call of 64 B, native echo, shm", call.median, "verbs SEND", bare.median, 3.0)]
    with (
        Server("native") as server,
        Peer("iwarp:lo") as peer,
        TcpLatency(peer, SIZE) as socket,
        BlockingCall(server, "iwarp") as subject,
    ):
        bare, call = interleave([socket, subject], Budget(seconds=seconds))
    figures.append(_ratio("call of 64 B, native echo, tcp", call.median, "bare TCP", bare.median, 1.4))
    return figures


def _ratio(name: str, measured: float, baseline: str, bare: float, bound: float) -> Figure:
    ratio = measured / bare
    return Figure(
        name,
        text.duration(measured),
        f"{baseline} {text.duration(bare)}",
        f"{ratio:.2f}",
        f"≤ {bound:g}",
        ratio <= bound,
    )


def _handlers(seconds: float) -> list[Figure]:
    with Server("loop") as server:
        return asyncio.run(_handler_figures(server, seconds))


async def _handler_figures(server: Server, seconds: float) -> list[Figure]:
    async with verbena.connect(server.address, wire="shm", config=Settings()) as session:
        streams = [await asyncio.open_connection("127.0.0.1", server.stream_port) for _ in range(TASKS)]

        def exchange(task: int) -> Callable[[], Awaitable[object]]:
            reader, writer = streams[task]

            async def once() -> None:
                writer.write(bytes(SIZE))
                await reader.readexactly(SIZE)

            return once

        figures = []
        for tasks in (1, TASKS):
            ours, theirs = [], []
            for _ in range(8):
                ours.append(await _rate([_call(session)] * tasks, seconds / 16))
                theirs.append(await _rate([exchange(task) for task in range(tasks)], seconds / 16))
            mine, other = sorted(ours)[len(ours) // 2], sorted(theirs)[len(theirs) // 2]
            kind = "one at a time" if tasks == 1 else f"{tasks} at once"
            figures.append(
                Figure(
                    f"call of 64 B, Python async handler, shm, {kind}",
                    text.rate(mine),
                    f"asyncio streams {text.rate(other)}",
                    f"{mine / other:.2f}",
                    "≥ 3",
                    mine >= 3 * other,
                )
            )
        for _, writer in streams:
            writer.close()
        return figures


def _call(session: Session) -> Callable[[], Awaitable[object]]:
    payload = bytes(SIZE)
    return lambda: session.call("echo", payload)


async def _rate(works: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> float:
    done = 0
    end = time.perf_counter() + seconds

    async def loop(work: Callable[[], Awaitable[object]]) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await work()
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(loop(work) for work in works))
    return done / (time.perf_counter() - start)


def _bulk(seconds: float) -> list[Figure]:
    data = bytearray(BULK)
    for start in range(0, BULK, 4096):
        data[start] = start >> 12 & 0xFF
    figures = []
    with Server("native", BULK) as server, Peer("shm") as peer:
        with baselines.Copy(peer, BULK, towards_peer=True) as copy, Bulk(server, "shm", data) as subject:
            bare, put = interleave([copy, subject], Budget(seconds=seconds, rounds=3))
        figures.append(_at_least("put of 1 GiB, CRC32C, shm", put.median, "memcpy", bare.median, 0.7))
    with (
        Server("native", BULK) as server,
        Peer("iwarp:lo") as peer,
        Peer("iwarp:lo") as warm_peer,
        probes.bandwidth(peer, "iwarp:lo", "write", "native", BULK) as wire,
        # One MiB written repeatedly stays in the caches of both ends; one GiB does not.
        probes.bandwidth(warm_peer, "iwarp:lo", "write", "native", 1 << 20) as warm,
        Bulk(server, "iwarp", data) as subject,
    ):
        bare, cached, put = interleave([wire, warm, subject], Budget(seconds=seconds, rounds=3))
    name = "put of 1 GiB, CRC32C, tcp"
    figures.append(_at_least(name, put.median, "the wire's WRITE of 1 GiB", bare.median, 0.8))
    figures.append(_at_least(name, put.median, "the wire's WRITE of one MiB", cached.median, None))
    return figures


def _at_least(name: str, measured: float, baseline: str, bare: float, bound: float | None) -> Figure:
    ratio = measured / bare
    return Figure(
        name,
        text.bandwidth(measured),
        f"{baseline} {text.bandwidth(bare)}",
        f"{ratio:.2f}",
        f"≥ {bound:g}" if bound else "–",
        ratio >= bound if bound else None,
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
