"""Probes: one class per question and mode, with the same two methods, run() and close(). A latency probe
returns nanoseconds per operation (per round trip for SEND), many per run; a rate probe returns one value,
operations per second, for the whole run. Bandwidth is rate times size."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal

from verbena import verbs
from verbena._closing import Closing
from verbena._native import bench
from verbena.cli.measure.link import TIMEOUT_S, Link, Shape, check
from verbena.cli.measure.peer import Peer

Operation = Literal["send", "read", "write", "atomic"]
OPCODES = {
    "send": verbs.Opcode.SEND,
    "read": verbs.Opcode.READ,
    "write": verbs.Opcode.WRITE,
    "atomic": verbs.Opcode.FETCH_ADD,
}
RATE_RECEIVES = 512


class Probe(Closing, ABC):
    """A measurement that can be run repeatedly; close() releases its resources."""

    least = 1  # operations in a run that is long compared with waking the peer

    @abstractmethod
    def run(self, count: int) -> Sequence[float]:
        """Performs `count` operations and returns samples. Raises VerbenaError."""

    def close(self) -> None:
        return None


class LinkProbe(Probe):
    """A probe on a link to the peer."""

    def __init__(self, peer: Peer, shape: Shape, operation: Operation) -> None:
        self._peer = peer
        self._operation = operation
        self._link, self._remote = peer.connect(shape)
        self._qp = self._link.qp
        self._local = self._link.window[: shape.window_bytes]
        self._work = bench.OneSided(
            opcode=int(OPCODES[operation]),
            addr=self._link.window.addr,
            length=shape.window_bytes,
            lkey=self._link.window.lkey,
            remote_addr=self._remote.addr,
            rkey=self._remote.rkey,
        )

    def close(self) -> None:
        self._link.close()

    def _blocking(self) -> Callable[[], object]:
        """The one-sided operation as a blocking call."""
        sync, local, remote = self._qp.sync, self._local, self._remote
        if self._operation == "read":
            return lambda: sync.read(local, remote)
        if self._operation == "write":
            return lambda: sync.write(local, remote)
        return lambda: sync.fetch_add(remote, 1)

    def _awaitable(self) -> Callable[[], Awaitable[object]]:
        qp, local, remote = self._qp, self._local, self._remote
        if self._operation == "read":
            return lambda: qp.read(local, remote)
        if self._operation == "write":
            return lambda: qp.write(local, remote)
        return lambda: qp.fetch_add(remote, 1)


class NativeLatency(LinkProbe):
    """A loop in C++, which measures the wire itself. A sample is the mean of `batch` operations."""

    least = 1000

    def __init__(self, peer: Peer, shape: Shape, operation: Operation, *, batch: int = 1) -> None:
        super().__init__(peer, shape, operation)
        self._batch = batch

    def run(self, count: int) -> Sequence[float]:
        samples = array("d", bytes(8 * -(-count // self._batch)))
        ends = self._link.native
        if self._operation == "send":
            with self._peer.busy("pong", rounds=len(samples) * self._batch):
                result = bench.ping(*ends, self._link.mailbox, samples, rounds=self._batch)
        else:
            result = bench.one_sided_latency(*ends, self._work, samples, rounds=self._batch)
        check(result, f"{self._operation} in a native loop")
        return samples


class PythonLatency(LinkProbe):
    """Blocking calls from Python, one at a time."""

    def run(self, count: int) -> Sequence[float]:
        if self._operation == "send":
            with self._peer.busy("pong", rounds=count):
                return self._ping(count)
        call, clock = self._blocking(), time.perf_counter_ns
        samples = array("d", bytes(8 * count))
        for index in range(count):
            start = clock()
            call()
            samples[index] = clock() - start
        return samples

    def _ping(self, count: int) -> Sequence[float]:
        link, message, clock = self._link, self._link.slot(0), time.perf_counter_ns
        samples = array("d", bytes(8 * count))
        for index in range(count):
            start = clock()
            self._qp.sync.send(message)
            completions = link.recv_cq.wait_blocking(max=1, timeout_s=TIMEOUT_S)
            samples[index] = clock() - start
            _answered(link, completions)
        return samples


class AsyncLatency(LinkProbe):
    """Awaited operations on an event loop, one at a time."""

    def __init__(self, peer: Peer, shape: Shape, operation: Operation) -> None:
        super().__init__(peer, shape, operation)
        self._loop = asyncio.new_event_loop()

    def run(self, count: int) -> Sequence[float]:
        if self._operation == "send":
            with self._peer.busy("pong", rounds=count):
                return self._loop.run_until_complete(self._ping(count))
        return self._loop.run_until_complete(self._one_sided(count))

    def close(self) -> None:
        super().close()
        self._loop.close()

    async def _one_sided(self, count: int) -> Sequence[float]:
        call, clock = self._awaitable(), time.perf_counter_ns
        samples = array("d", bytes(8 * count))
        for index in range(count):
            start = clock()
            await call()
            samples[index] = clock() - start
        return samples

    async def _ping(self, count: int) -> Sequence[float]:
        link, message, clock = self._link, self._link.slot(0), time.perf_counter_ns
        samples = array("d", bytes(8 * count))
        for index in range(count):
            start = clock()
            await self._qp.send(message)
            completions = await link.recv_cq.wait(max=1, timeout_s=TIMEOUT_S)
            samples[index] = clock() - start
            _answered(link, completions)
        return samples


class Rate(LinkProbe):
    """Operations per second with many in flight, by the means of each mode; blocking Python SENDs and atomics
    run one at a time."""

    def __init__(
        self, peer: Peer, shape: Shape, operation: Operation, *, depth: int = 64, sleeps: bool = False
    ) -> None:
        super().__init__(peer, shape, operation)
        self._sleeps = sleeps
        self._depth = min(depth, shape.max_send)
        self.least = min_operations(max(shape.message_bytes, shape.window_bytes))
        self._loop = asyncio.new_event_loop() if shape.mode == "async" else None

    def run(self, count: int) -> Sequence[float]:
        run = {"native": self._native, "python": self._python, "async": self._async}[self._link.shape.mode]
        if self._operation == "send":
            with self._peer.busy("receive", messages=count):
                elapsed_ns = run(count)
        else:
            elapsed_ns = run(count)
        return [count * 1e9 / max(elapsed_ns, 1)]

    def close(self) -> None:
        super().close()
        if self._loop is not None:
            self._loop.close()

    def _native(self, count: int) -> int:
        if self._operation == "send":
            result = bench.send_rate(*self._link.native, self._link.mailbox, count, depth=self._depth)
        else:
            result = bench.one_sided_rate(
                *self._link.native, self._work, count, depth=self._depth, sleeps=self._sleeps
            )
        elapsed_ns: int = check(result, f"{self._operation} at full rate").elapsed_ns
        return elapsed_ns

    def _python(self, count: int) -> int:
        """Uses one native call for the whole batch for reads and writes, else one call per operation."""
        if self._operation in ("read", "write"):
            rows = memoryview(array("Q", (0, 0, len(self._local)) * count)).cast("B").cast("Q", (count, 3))
            sync = self._qp.sync
            many = sync.read_many if self._operation == "read" else sync.write_many
            start = time.perf_counter_ns()
            many(self._link.window, self._remote, rows)
            return time.perf_counter_ns() - start
        sync, message = self._qp.sync, self._link.slot(0)
        call = self._blocking() if self._operation == "atomic" else lambda: sync.send(message)
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        return time.perf_counter_ns() - start

    def _async(self, count: int) -> int:
        assert self._loop is not None
        return self._loop.run_until_complete(self._gathered(count))

    async def _gathered(self, count: int) -> int:
        qp, message = self._qp, self._link.slot(0)
        call = self._awaitable() if self._operation != "send" else lambda: qp.send(message)
        start = time.perf_counter_ns()
        left = count
        while left:
            batch = min(left, self._depth)
            await asyncio.gather(*(call() for _ in range(batch)))
            left -= batch
        return time.perf_counter_ns() - start


class Scaled(Probe):
    """Multiplies another probe's samples by a constant: bandwidth from rate."""

    def __init__(self, inner: Probe, factor: float) -> None:
        self._inner = inner
        self._factor = factor
        self.least = inner.least

    def run(self, count: int) -> Sequence[float]:
        return [sample * self._factor for sample in self._inner.run(count)]

    def close(self) -> None:
        self._inner.close()


def min_operations(size: int) -> int:
    """Returns how many operations of a size make a meaningful rate: thousands of small ones, few large
    ones."""
    return max(4, min(20_000, (64 << 20) // size))


def latency(
    peer: Peer, provider: str, operation: Operation, mode: str, size: int, *, batch: int = 1
) -> Probe:
    """Creates a latency probe. `batch` applies to native loops, whose operations are shorter than the clock's
    resolution."""
    shape = _shape(provider, mode, operation, size)
    if mode == "native":
        return NativeLatency(peer, shape, operation, batch=batch)
    return (PythonLatency if mode == "python" else AsyncLatency)(peer, shape, operation)


def rate(peer: Peer, provider: str, operation: Operation, mode: str, size: int, *, depth: int = 64) -> Probe:
    """Creates a rate probe: operations per second."""
    shape = _shape(provider, mode, operation, size, receives=RATE_RECEIVES)
    return Rate(peer, shape, operation, depth=depth)


def bandwidth(
    peer: Peer,
    provider: str,
    operation: Operation,
    mode: str,
    size: int,
    *,
    settings: dict[str, str] | None = None,
    sleeps: bool = False,
    depth: int = 4,
) -> Probe:
    """Creates a bandwidth probe: bytes per second. A few operations in flight keep a copy going.

    A native one-sided loop with `sleeps` waits on the queue's descriptor instead of spinning."""
    shape = replace(_shape(provider, mode, operation, size, receives=8), settings=settings or {})
    return Scaled(Rate(peer, shape, operation, depth=depth, sleeps=sleeps), size)


def _shape(provider: str, mode: str, operation: Operation, size: int, *, receives: int = 64) -> Shape:
    two_sided = operation == "send"
    return Shape(
        provider,
        mode=mode,  # type: ignore[arg-type]
        message_bytes=size if two_sided else 8,
        window_bytes=8 if two_sided else size,
        receives=receives if two_sided else 1,
    )


def _answered(link: Link, completions: Sequence[verbs.WorkCompletion]) -> None:
    for completion in completions:
        completion.raise_for_status(operation="receive a pong")
        link.repost(completion.wr_id)
