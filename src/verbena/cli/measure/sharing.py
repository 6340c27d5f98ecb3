"""Two processes that share an array, for `verbena demo`: one exposes it, the other reads and writes it."""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from verbena import errors
from verbena.cli import text
from verbena.cli.measure.link import Link, Shape, view
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.stats import Summary
from verbena.cli.progress import Progress
from verbena.verbs import RemoteMemory

ARRAY_BYTES = 4 << 20
BULK_BYTES = 1 << 20
SMALL_BYTES = 8
BATCH = 10_000
TURN_S = 0.02
REFRESH_S = 0.25
PLAIN_REFRESH_S = 1.0


def run(options: argparse.Namespace) -> int:
    with Peer(options.provider) as peer:
        shape = Shape(options.provider, mode="python", window_bytes=ARRAY_BYTES, receives=1)
        link, remote = peer.connect(shape)
        try:
            owner = peer.ask("fill")
            owned = f"{owner['kind']} ({text.size(ARRAY_BYTES)})"
            say = (lambda _: None) if options.json else print
            say(f"over {options.provider} the other {peer.kind} exposes a {owned}")
            _verify_read(link, remote, owner["crc32"])
            say(f"  read {text.size(ARRAY_BYTES)} one-sided: checksum matches the owner's")
            meter = _Meter(link, remote)
            if options.json:
                with Progress("demo") as bar:
                    _measure(meter, options.seconds, bar)
            else:
                _live(meter, options.seconds)
            _verify_write(link, remote, peer)
            say(f"  wrote {text.size(ARRAY_BYTES)} one-sided: checksum matches the owner's")
            if options.json:
                document = {"provider": options.provider, "array_bytes": ARRAY_BYTES, "verified": True}
                print(json.dumps({**document, "operations": meter.as_json()}, indent=2))
        finally:
            link.close()
    return 0


class _Meter:
    """Running measurements: each turn does some accesses of every kind."""

    def __init__(self, link: Link, remote: RemoteMemory) -> None:
        sync = link.qp.sync
        window = link.window
        small, bulk = window[:SMALL_BYTES], window[:BULK_BYTES]
        self._rows = memoryview(array("Q", (0, 0, SMALL_BYTES) * BATCH)).cast("B").cast("Q", (BATCH, 3))
        self._batch: Callable[[], object] = lambda: sync.read_many(window, remote, self._rows)
        self._singles: dict[str, Callable[[], object]] = {
            "READ 8 B": lambda: sync.read(small, remote[:SMALL_BYTES]),
            "WRITE 8 B": lambda: sync.write(small, remote[:SMALL_BYTES]),
            "READ 1 MiB": lambda: sync.read(bulk, remote[:BULK_BYTES]),
            "WRITE 1 MiB": lambda: sync.write(bulk, remote[:BULK_BYTES]),
        }
        self._samples: dict[str, list[float]] = {name: [] for name in self._singles}
        self._batch_rates: list[float] = []

    def turn(self) -> None:
        clock = time.perf_counter_ns
        for name, call in self._singles.items():
            samples, end = self._samples[name], clock() + TURN_S * 1e9
            while (start := clock()) < end:
                call()
                samples.append(clock() - start)
        start = clock()
        self._batch()
        self._batch_rates.append(BATCH * 1e9 / (clock() - start))

    def as_json(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {"operation": name, "unit": "ns", **Summary.of(samples).as_json()}
            for name, samples in self._samples.items()
        ]
        batch = {"operation": f"READ 8 B × {BATCH}", "unit": "operations/s"}
        return [*rows, {**batch, **Summary.of(self._batch_rates).as_json()}]

    def table(self) -> str:
        rows = [["from Python", "p50", "p99", "p99.9", "bandwidth", "operations"]]
        for name, samples in self._samples.items():
            summary = Summary.of(samples)
            moved = BULK_BYTES if "MiB" in name else SMALL_BYTES
            _, _, p99, p99_9 = summary.quantiles
            rows.append(
                [
                    name,
                    *(text.duration(value) for value in (summary.median, p99, p99_9)),
                    text.bandwidth(moved * 1e9 / summary.median),
                    text.rate(1e9 / summary.median),
                ]
            )
        rate = Summary.of(self._batch_rates).median
        bandwidth = text.bandwidth(rate * SMALL_BYTES)
        rows.append([f"READ 8 B × {BATCH:,}", "", "", "", bandwidth, text.rate(rate)])
        return text.table(rows, indent="  ")


def _measure(meter: _Meter, duration_s: float, bar: Progress) -> None:
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < duration_s:
        bar.update(elapsed / duration_s)
        meter.turn()


def _live(meter: _Meter, duration_s: float) -> None:
    """Redraws the table in place on a terminal; elsewhere prints it every PLAIN_REFRESH_S."""
    terminal = sys.stdout.isatty()
    start = time.monotonic()
    shown = start
    lines = 0
    while True:
        meter.turn()
        now = time.monotonic()
        over = now - start >= duration_s
        if over or now - shown >= (REFRESH_S if terminal else PLAIN_REFRESH_S):
            shown = now
            drawn = meter.table()
            up = f"\x1b[{lines}A" if terminal and lines else ""
            print(up + _cleared(drawn.splitlines(), terminal=terminal), flush=True)
            lines = drawn.count("\n") + 1
        if over:
            return


def _cleared(lines: Sequence[str], *, terminal: bool) -> str:
    return "\n".join(f"{line}\x1b[K" if terminal else line for line in lines)


def _verify_read(link: Link, remote: RemoteMemory, wanted: int) -> None:
    """Reads the whole array one-sided and compares it with the owner's checksum. Raises VerbenaError if they
    differ."""
    link.qp.sync.read(link.window, remote)
    _compare(zlib.crc32(view(link.window)), wanted, "read the whole array")


def _verify_write(link: Link, remote: RemoteMemory, peer: Peer) -> None:
    """Writes the whole array one-sided and compares the owner's checksum. Raises VerbenaError if they
    differ."""
    pattern = bytes(range(256)) * (ARRAY_BYTES // 256)
    view(link.window)[:] = pattern
    link.qp.sync.write(link.window, remote)
    _compare(peer.ask("digest")["crc32"], zlib.crc32(pattern), "write the whole array")


def _compare(found: int, wanted: int, operation: str) -> None:
    if found != wanted:
        detail = f"checksum {found:08x} instead of {wanted:08x}"
        raise errors.setup_error("bad_message", operation=operation, detail=detail)
