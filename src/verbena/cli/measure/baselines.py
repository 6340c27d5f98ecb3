"""Baselines of `verbena bench` without verbs: a bare ring and memcpy."""

from __future__ import annotations

import mmap
import os
import time
from array import array
from collections.abc import Sequence

from verbena import errors
from verbena._native import bench
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe, min_operations

RING_SLOTS = 64


class _Ring(Probe):
    def __init__(self, peer: Peer, payload_bytes: int) -> None:
        self._peer = peer
        size = bench.RingPair.size_bytes(payload_bytes, RING_SLOTS)
        fd = peer.share(size)
        self._mapping = mmap.mmap(fd, size)
        self._ring = bench.RingPair(self._mapping, payload_bytes=payload_bytes, slots=RING_SLOTS, side=0)
        peer.ask("map_ring", fd=fd, payload_bytes=payload_bytes, slots=RING_SLOTS)

    def _expect(self, done: int, wanted: int) -> None:
        if done != wanted:
            detail = f"no response from the peer after {done} of {wanted}"
            raise errors.setup_error("connect_timeout", operation="run the bare ring", detail=detail)


class RingLatency(_Ring):
    """Round trips over a bare ring: the payload is copied in and out, and both sides spin."""

    name = "bare ring"
    least = 1000

    def __init__(self, peer: Peer, payload_bytes: int, *, batch: int = 1) -> None:
        super().__init__(peer, payload_bytes)
        self._batch = batch

    def run(self, count: int) -> Sequence[float]:
        samples = array("d", bytes(8 * -(-count // self._batch)))
        rounds = len(samples) * self._batch
        with self._peer.busy("ring_pong", rounds=rounds):
            self._expect(self._ring.ping(samples, rounds=self._batch), rounds)
        return samples


class RingRate(_Ring):
    """Messages per second, one way, over the bare ring."""

    name = "bare ring"

    def __init__(self, peer: Peer, payload_bytes: int) -> None:
        super().__init__(peer, payload_bytes)
        self.least = min_operations(payload_bytes)

    def run(self, count: int) -> Sequence[float]:
        with self._peer.busy("ring_consume", messages=count):
            start = time.perf_counter_ns()
            self._expect(self._ring.produce(count), count)
            elapsed_ns = time.perf_counter_ns() - start
        return [count * 1e9 / elapsed_ns]


class Copy(Probe):
    """memcpy between two shared mappings, one of them written by the peer before; bytes per second."""

    name = "memcpy"

    def __init__(self, peer: Peer, size: int, *, towards_peer: bool) -> None:
        self._size = size
        fd = peer.share(_whole_pages(size))
        peer.ask("touch", fd=fd)
        own_fd = os.memfd_create("verbena-bench", os.MFD_CLOEXEC)
        try:
            os.ftruncate(own_fd, _whole_pages(size))
            own = mmap.mmap(own_fd, _whole_pages(size))
        finally:
            os.close(own_fd)
        own[:] = b"\xa5" * len(own)
        theirs = mmap.mmap(fd, _whole_pages(size))
        source, target = (own, theirs) if towards_peer else (theirs, own)
        self._source, self._target = memoryview(source)[:size], memoryview(target)[:size]

    def run(self, count: int) -> Sequence[float]:
        samples = array("d", bytes(8 * count))
        bench.copy_loop(self._target, self._source, samples)
        return [self._size * count * 1e9 / max(sum(samples), 1.0)]


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
