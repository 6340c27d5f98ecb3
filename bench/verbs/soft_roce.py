"""How do Verbena's native loops compare with perftest's on the same Soft-RoCE device?

    make bench-kernel     (tests/kernel/host/boot.py --python .venv/bin/python -m bench.verbs.soft_roce)

Runs in the kernel testbed's guest, where the processor is emulated: only the ratios mean anything. Each turn
has perftest and Verbena one after the other with the same parameters: two processes, one device; 64-byte
inline SENDs, each signalled, answered in turn and polled for; 64 KiB WRITEs, as many under way and signalled.
The medians over the turns count. On a busy host they tell more of its scheduler than of the two: wait for a
quiet one.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import statistics
import subprocess
import time

from bench.figure import Figure, program
from verbena.cli.measure.link import Shape
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import NativeLatency, Rate

PORT = "18515"
MESSAGE, BLOCK = 64, 65_536
DEPTH, SIGNAL_EVERY = 64, 32  # the native loop's behaviour at this depth
WRITES = 500  # per call of the native loop
MARGIN_S = 1  # perftest does not count at the beginning and the end
TYPICAL = 4  # the column of the median
NAMES = ("ib_send_lat us", "Verbena us", "ib_write_bw MiB/s", "Verbena MiB/s")


def perftest(name: str, device: str, size: int, *options: str) -> list[str]:
    """Runs perftest; returns the row of results that its client prints."""
    command = [name, "-F", "-d", device, "-x", "1", "-s", str(size), *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not subprocess.run(["ss", "-Hltn", f"sport = :{PORT}"], capture_output=True, check=True).stdout:
            if server.poll() is not None:
                raise SystemExit(f"{name} does not listen")
            time.sleep(0.1)
        report = subprocess.run([*command, "127.0.0.1"], capture_output=True, text=True, check=True).stdout
        server.wait(30)
    finally:
        server.kill()
        server.wait()
    return next(line.split() for line in report.splitlines() if line.split()[:1] == [str(size)])


def cycles_per_us() -> float:
    """Measures the frequency of the cycle counter. perftest estimates it over microseconds, and is wrong
    under emulation."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; shl rdx, 32; or rax, rdx; ret
    here = ctypes.addressof(ctypes.c_char.from_buffer(code))
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(here)
    first, start_ns = counter(), time.monotonic_ns()
    time.sleep(0.5)
    return (counter() - first) * 1000 / (time.monotonic_ns() - start_ns)


def send_lat_us(device: str, messages: int) -> float:
    row = perftest("ib_send_lat", device, MESSAGE, "-n", str(messages), "-I", str(MESSAGE), "-C")
    return float(row[TYPICAL]) / cycles_per_us()


def write_bw_mib(device: str, seconds: int) -> float:
    """Computes bandwidth from the number of WRITEs in a given time, which does not involve the cycle
    counter."""
    length = ("-D", str(seconds + 2 * MARGIN_S), "-f", str(MARGIN_S))
    depth = ("-t", str(DEPTH), "-Q", str(SIGNAL_EVERY))
    return int(perftest("ib_write_bw", device, BLOCK, *depth, *length)[1]) / seconds * BLOCK / 2**20


def our_lat_us(provider: str, messages: int) -> float:
    # In a queue of two, every SEND is signalled, as in perftest.
    shape = Shape(provider, message_bytes=MESSAGE, window_bytes=8, receives=DEPTH, max_send=2)
    with Peer(provider) as peer, NativeLatency(peer, shape, "send") as probe:
        probe.run(100)
        return statistics.median(probe.run(messages)) / 2000  # half a round trip, as in perftest


def our_bw_mib(provider: str, seconds: int) -> float:
    shape = Shape(provider, message_bytes=8, window_bytes=BLOCK, receives=1)
    with Peer(provider) as peer, Rate(peer, shape, "write", depth=DEPTH) as probe:
        probe.run(DEPTH)
        start = now = time.monotonic()
        done = 0
        while now - start < seconds:
            probe.run(WRITES)
            done += WRITES
            now = time.monotonic()
        return done / (now - start) * BLOCK / 2**20


def measure(options: argparse.Namespace) -> list[Figure]:
    device, provider, seconds = options.device, f"ibv:{options.device}", round(options.seconds)
    series: dict[str, list[float]] = {name: [] for name in NAMES}
    for turn in range(options.turns):
        figures = (
            send_lat_us(device, options.messages),
            our_lat_us(provider, options.messages),
            write_bw_mib(device, seconds),
            our_bw_mib(provider, seconds),
        )
        for values, figure in zip(series.values(), figures, strict=True):
            values.append(figure)
        shown = ", ".join(f"{name} {values[-1]:.1f}" for name, values in series.items())
        print(f"turn {turn + 1}: {shown}", flush=True)

    lat, our_lat, bw, our_bw = (statistics.median(values) for values in series.values())
    return [
        Figure(
            f"ibv SEND {MESSAGE} B, half a round trip",
            f"{our_lat:.1f} us",
            f"ib_send_lat {lat:.1f} us",
            f"{our_lat / lat:.2f}",
            "≤ 1.10",
            our_lat / lat <= 1.10,
        ),
        Figure(
            f"ibv WRITE {BLOCK >> 10} KiB, {DEPTH} under way",
            f"{our_bw:.1f} MiB/s",
            f"ib_write_bw {bw:.1f} MiB/s",
            f"{our_bw / bw:.2f}",
            "≥ 0.90",
            our_bw / bw >= 0.90,
        ),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="rxe1", help="where both ends are (default: rxe1)")
    parser.add_argument("--turns", type=int, default=7, help="how often each is measured (default: 7)")
    parser.add_argument("--messages", type=int, default=3000, help="round trips in one turn (default: 3000)")


if __name__ == "__main__":
    program(measure, description=__doc__, arguments=add_arguments)
