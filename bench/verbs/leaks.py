"""Is everything given back? Descriptors, mappings and resident memory over many regions and connections."""

from __future__ import annotations

import argparse
import gc
import os
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure, program
from verbena import verbs
from verbena.cli.measure.link import Shape
from verbena.cli.measure.peer import Peer

REGISTRATIONS = 10_000
CONNECTIONS = 1_000
ALIVE = 100
WARM_UP = 50
# Allocators may keep a few mappings and pages; a leak of one per round is far above these limits.
MAPS_SLACK = 8
RSS_SLACK_KIB = 4096


@dataclass(frozen=True)
class Holdings:
    """The resources that a process holds at one moment."""

    fds: int
    maps: int
    rss_kib: int

    @classmethod
    def of(cls, pid: int) -> Holdings:
        folder = Path("/proc") / str(pid)
        status = (folder / "status").read_text()
        rss = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        maps = (folder / "maps").read_text().count("\n")
        return cls(len(list((folder / "fd").iterdir())), maps, int(rss))

    def figure(self, name: str, before: Holdings) -> Figure:
        fds, maps, rss = self.fds - before.fds, self.maps - before.maps, self.rss_kib - before.rss_kib
        return Figure(
            name,
            f"{self.fds} fds, {self.maps} maps, {self.rss_kib} KiB",
            f"{before.fds} fds, {before.maps} maps, {before.rss_kib} KiB before",
            f"{fds:+d}, {maps:+d}, {rss:+d} KiB",
            f"+0, +{MAPS_SLACK}, +{RSS_SLACK_KIB} KiB",
            fds <= 0 and maps <= MAPS_SLACK and rss <= RSS_SLACK_KIB,
        )


def measure(options: argparse.Namespace) -> list[Figure]:
    return [_registrations(), *_connections()]


def _registrations() -> Figure:
    with verbs.open_device("shm") as context, context.alloc_pd() as pd:

        def register(count: int) -> None:
            for _ in range(count // ALIVE):
                regions = [pd.register(bytearray(4096)) for _ in range(ALIVE // 2)]
                regions += [pd.allocate(4096) for _ in range(ALIVE // 2)]
                for region in regions:
                    region.close()
            gc.collect()

        register(REGISTRATIONS // 2)  # key tables grow to their full size once
        before = Holdings.of(os.getpid())
        register(REGISTRATIONS)
        return Holdings.of(os.getpid()).figure(f"shm {REGISTRATIONS:,} regions made and closed", before)


def _connections() -> list[Figure]:
    shape = Shape("shm", mode="python", receives=8)
    with Peer("shm") as peer:

        def connect(count: int) -> None:
            for _ in range(count):
                link, _ = peer.connect(shape)
                link.close()
            peer.ask("close")
            gc.collect()

        connect(WARM_UP)
        before, their_before = Holdings.of(os.getpid()), Holdings.of(peer.pid)
        connect(CONNECTIONS)
        name = f"shm {CONNECTIONS:,} connections made and closed"
        return [
            Holdings.of(os.getpid()).figure(f"{name}, this end", before),
            Holdings.of(peer.pid).figure(f"{name}, other end", their_before),
        ]


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
