"""What does RDMA over QUIC leave of TLS over TCP, in bulk and in round trips?"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile

from bench.figure import Figure, program
from bench.wires.tls_peer import SMALL, TlsPeer
from verbena.cli import text
from verbena.cli.measure import probes
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.rounds import Budget, interleave
from verbena.transport.handshake.authority import Authority
from verbena.verbs import providers

DEVICE = "quic:lo"
SIZE = 1 << 20
TURNS = 3
ROUND_TRIPS = 2000
LATENCY_BOUND = 3.0
# Bytes per datagram (0: the default), description, required share of TLS over TCP.
DATAGRAMS = ((1452, "1452-byte datagrams", 0.15), (0, "large datagrams", 0.35))


def measure(options: argparse.Namespace) -> list[Figure]:
    info = next(info for info in providers() if info.name == "quic")
    if not info.available:
        return [Figure("quic", "not measured", info.reason, "–")]
    with tempfile.TemporaryDirectory(prefix="verbena-bench-") as folder:
        authority = Authority.create(folder, days=2)
        issued = authority.issue("bench", ["127.0.0.1", "localhost"], days=1)
        files = {"CERTIFICATE": issued.certificate, "KEY": issued.key, "AUTHORITY": authority.certificate}
        os.environ.update({f"VERBENA_QUIC_TLS_{name}": str(path) for name, path in files.items()})
        with TlsPeer(str(issued.certificate), str(issued.key), str(authority.certificate)) as tls:
            return [*_bulk(tls, options.seconds), _round_trip(tls, options.seconds)]


def _bulk(tls: TlsPeer, seconds: float) -> list[Figure]:
    figures = []
    for datagram, words, bound in DATAGRAMS:
        os.environ.pop("VERBENA_QUIC_DATAGRAM_BYTES", None)
        if datagram:
            os.environ["VERBENA_QUIC_DATAGRAM_BYTES"] = str(datagram)
        own: list[float] = []
        bare: list[float] = []
        with (
            Peer(DEVICE) as peer,
            probes.bandwidth(peer, DEVICE, "write", "native", SIZE) as subject,
        ):
            for _ in range(TURNS):
                bare.append(tls.bulk_bytes_per_s())
                own.append(interleave([subject], Budget(seconds=seconds / TURNS))[0].median)
        measured, baseline = statistics.median(own), statistics.median(bare)
        figures.append(
            Figure(
                f"quic WRITE {text.size(SIZE)}, {words}",
                text.bandwidth(measured),
                f"TLS over TCP, Python's ssl {text.bandwidth(baseline)}",
                f"{measured / baseline:.2f}",
                f"≥ {bound}",
                measured >= bound * baseline,
            )
        )
    return figures


def _round_trip(tls: TlsPeer, seconds: float) -> Figure:
    own: list[float] = []
    bare: list[float] = []
    with Peer(DEVICE) as peer, probes.latency(peer, DEVICE, "send", "native", SMALL) as subject:
        for _ in range(TURNS):
            bare.append(tls.round_trip_ns(ROUND_TRIPS))
            own.append(interleave([subject], Budget(seconds=seconds / TURNS))[0].median)
    measured, baseline = statistics.median(own), statistics.median(bare)
    return Figure(
        f"quic SEND {SMALL} B round trip",
        text.duration(measured),
        f"TLS over TCP, Python's ssl {text.duration(baseline)}",
        f"{measured / baseline:.2f}",
        f"≤ {LATENCY_BOUND:g}",
        measured <= LATENCY_BOUND * baseline,
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
