"""How fast is a one-sided READ or WRITE between two processes, beside NIXL and Mooncake?

    python -m bench.transport.peers [--python PATH]     (an interpreter that has nixl and mooncake)

The systems take turns in one run, over shared memory and over TCP on loopback, in processes of their own.
Buffers are reused; requests are prepared once if the system can. A ratio compares speeds: Verbena's beside
the best peer's. Only Verbena verifies long transfers end to end. CPU seconds are those of both ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from bench.figure import Figure, program
from bench.transport.peers_process import Pair, System, Transfers, missing
from verbena.cli import text
from verbena.cli.measure.rounds import Budget, interleave

SIZES = (64, 64 << 10, 1 << 20, 16 << 20)
LATENCY_BELOW = 4096  # longer transfers are measured by their bandwidth
OPERATIONS = ("read", "write")
PYTHON_VARIABLE = "BENCH_PEERS_PYTHON"  # for bench.run, which passes no arguments

UCX = {
    "UCX_NET_DEVICES": "lo",
    "UCX_LOG_LEVEL": "info",
    "UCX_PROTO_INFO": "y",  # prints the transports that it selects
    "NIXL_LOG_LEVEL": "ERROR",
}
# Without a pool each transfer takes a port of its own, until none is left. Slices are 64 KiB by default; with
# longer ones long transfers are faster.
MOONCAKE = {"MC_TCP_ENABLE_CONNECTION_POOL": "true", "MC_TCP_SLICE_SIZE": str(1 << 20)}


def verbena(wire: str) -> System:
    return System("Verbena", "peers_verbena", "verbena", (wire,))


def nixl(transports: str, *, polls: bool) -> System:
    return System("NIXL", "peers_nixl", "nixl", (), {**UCX, "UCX_TLS": transports}, polls)


# The one list of systems: wire → Verbena, then its peers. Over shared memory UCX copies in the kernel (cma),
# or it sends messages to the target, which copies (posix alone). Either may be faster.
WIRES = {
    "shm": (verbena("shm"), nixl("posix,cma,self", polls=False), nixl("posix,self", polls=True)),
    "tcp": (
        verbena("iwarp"),
        nixl("tcp,self", polls=True),
        System("Mooncake", "peers_mooncake", "mooncake.engine", (), MOONCAKE),
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        default=os.environ.get(PYTHON_VARIABLE) or sys.executable,
        metavar="PATH",
        help=f"an interpreter that has the peers (default: ${PYTHON_VARIABLE}, or this interpreter)",
    )
    parser.add_argument("--wire", choices=WIRES, action="append", help="only this wire; may be repeated")


def measure(options: argparse.Namespace) -> list[Figure]:
    packages = {peer.package: peer.name for systems in WIRES.values() for peer in systems[1:]}
    reasons = {package: missing(options.python, package) for package in packages}
    figures = [
        Figure(f"{name}: left out", reasons[package], "–", "–")
        for package, name in packages.items()
        if reasons[package]
    ]
    for wire in options.wire or WIRES:
        own, *others = WIRES[wire]
        peers = [peer for peer in others if not reasons[peer.package]]
        if peers:
            figures += _beside(wire, own, peers, options)
    return figures


def _beside(wire: str, own: System, peers: Sequence[System], options: argparse.Namespace) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(Pair(sys.executable, own))]
        pairs += [stack.enter_context(Pair(options.python, peer)) for peer in peers]
        for operation in OPERATIONS:
            for size in SIZES:
                yield _figure(wire, operation, size, pairs, options.seconds)


def _figure(wire: str, operation: str, size: int, pairs: Sequence[Pair], seconds: float) -> Figure:
    transfers = [Transfers(pair, operation, size) for pair in pairs]
    durations = [series.median for series in interleave(transfers, Budget(seconds=seconds))]
    own, *peers = (_cell(one, size, ns) for one, ns in zip(transfers, durations, strict=True))
    ratio = min(durations[1:]) / durations[0]
    ranked = sorted(
        (ns, f"{pair.system.name} {pair.transports(operation)}".strip(), cell)
        for pair, ns, cell in zip(pairs[1:], durations[1:], peers, strict=True)
    )
    return Figure(
        f"{operation} of {text.size(size)}, {wire}",
        own,
        "; ".join(f"{name} {cell}" for _, name, cell in ranked),
        f"{ratio:.2f}",
        "≥ 1",
        ratio >= 1,
    )


def _cell(transfers: Transfers, size: int, ns: float) -> str:
    if size < LATENCY_BELOW:
        return text.duration(ns)
    return f"{text.bandwidth(size * 1e9 / ns)}, {transfers.cpu_s_per_gb:.2f} CPU s/GB"


if __name__ == "__main__":
    program(measure, description=(__doc__ or "").splitlines()[0], arguments=arguments)
