"""How long does a 64-byte SEND over TCP take there and back, beside a bare socket and UCX?"""

from __future__ import annotations

import argparse
import functools

from bench import latency, ucx
from bench.figure import Figure, program
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.tcp import TcpLatency

SIZE = 64
UCX_ITERATIONS = 20_000
COMPARISON = latency.Comparison(
    name=f"iwarp SEND {SIZE} B round trip, CRC32C",
    baseline="bare TCP",
    bound=1.25,
    ucx="UCX tcp",
    ucx_tests=ucx.TCP_TESTS,
    ucx_round_trip_ns=functools.partial(ucx.tcp_round_trip_ns, size=SIZE, iterations=UCX_ITERATIONS),
    ucx_bound=1,
)


def measure(options: argparse.Namespace) -> list[Figure]:
    with (
        Peer("iwarp:lo") as peer,
        TcpLatency(peer, SIZE) as socket,
        probes.latency(peer, "iwarp:lo", "send", "native", SIZE) as subject,
    ):
        return latency.figures(socket, subject, COMPARISON, seconds=options.seconds)


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
