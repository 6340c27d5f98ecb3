"""Two connected queue pairs on any provider, and the bounded waits that every test uses."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from verbena import verbs
from verbena.errors import WcStatus
from verbena.verbs import (
    Access,
    CompletionQueue,
    Connection,
    Context,
    MemoryRegion,
    Opcode,
    ProtectionDomain,
    QpState,
    QueuePair,
    RecvWorkRequest,
    SendWorkRequest,
    WorkCompletion,
)

DEADLINE_S = 10.0
REMOTE_ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
# Gives up on an unresponsive peer after some milliseconds, so that its tests are short.
IMPATIENT = {"timeout": 8, "retry_count": 1}
_numbers = itertools.count()


@dataclass
class End:
    """One side of a pair: a queue pair and the objects that it needs."""

    context: Context
    pd: ProtectionDomain
    cq: CompletionQueue
    recv_cq: CompletionQueue
    qp: QueuePair
    connection: Connection | None = None
    # A region without references is closed: the pair holds regions that a test uses only by their remote key.
    regions: list[MemoryRegion] = field(default_factory=list, repr=False)

    def region(self, content: bytes | int, access: Access = Access.ALL) -> MemoryRegion:
        """Registers memory that the wire can share: `length` zero bytes, or the given bytes."""
        length = content if isinstance(content, int) else len(content)
        mr = self.pd.allocate(length, access=access)
        if not isinstance(content, int):
            memoryview(mr)[:] = content
        self.regions.append(mr)
        return mr

    def do(self, *requests: SendWorkRequest) -> list[WorkCompletion]:
        """Posts signalled requests, waits for their completions, and until the peer has executed them."""
        self.qp.post_send(*requests)
        done = drain(self.cq, len(requests))
        self.settle()
        return done

    def settle(self) -> None:
        """Returns when the peer has executed all completed requests. That is at once, unless the wire
        completes requests without an acknowledgement: then it waits for an empty READ behind them."""
        if self.qp.state is QpState.RTS and self.qp.capabilities.get("acknowledged") == "no":
            self.qp.post_send(read((), verbs.RemoteMemory(0, 0, 0)))
            drain(self.cq, 1)

    def expect(self, *regions: Any) -> None:
        """Posts one receive for each region (or scatter list), numbered from 0."""
        self.qp.post_recv(*(RecvWorkRequest(local=local, wr_id=i) for i, local in enumerate(regions)))


@dataclass
class Pair:
    a: End
    b: End

    def swapped(self) -> Pair:
        return Pair(self.b, self.a)


def open_contexts(provider: str, stack: contextlib.ExitStack) -> tuple[Context, Context]:
    """Opens the contexts of both ends. The fake wire exists within one context, so both ends share it."""
    first = stack.enter_context(verbs.open_device(provider))
    return first, first if provider == "fake" else stack.enter_context(verbs.open_device(provider))


def make_end(context: Context, *, cq_depth: int = 512, shared_cq: bool = False, **qp_options: Any) -> End:
    """An unconnected queue pair with separate completion queues for sends and receives, or with one for
    both."""
    pd = context.alloc_pd()
    cq = context.create_cq(depth=cq_depth)
    recv_cq = cq if shared_cq else context.create_cq(depth=cq_depth)
    return End(context, pd, cq, recv_cq, pd.create_qp(send_cq=cq, recv_cq=recv_cq, **qp_options))


def connect_endpoints(a: End, b: End, **attributes: Any) -> None:
    """Moves both to RTS by exchanging endpoints, with the same attributes on both sides."""
    a.qp.connect_to(b.qp.endpoint, **attributes)
    b.qp.connect_to(a.qp.endpoint, **attributes)


def connect_managed(a: End, b: End, *, address: str = "") -> None:
    """Moves both to RTS through the connection manager: `b` listens, `a` connects."""
    with b.context.listen(address) as listener, ThreadPoolExecutor(1) as caller:
        calling = caller.submit(a.context.connect_blocking, a.qp, listener.address, timeout_s=DEADLINE_S)
        request = listener.accept_blocking(timeout_s=DEADLINE_S)
        b.connection = request.accept_blocking(b.qp)
        a.connection = calling.result(DEADLINE_S)


def unused_address(context: Context) -> str:
    """An address without a listener: an unused name or, if the wire needs a real address, one that was just
    freed."""
    if "host:port" in context.attributes.capabilities.get("managed_connections", ""):
        with context.listen("") as listener:
            return listener.address
    return f"test-{os.getpid()}-{next(_numbers)}"


def reconnect(pair: Pair, **attributes: Any) -> None:
    """Connects a broken pair again: both to RESET, then to RTS."""
    for end in (pair.a, pair.b):
        end.qp.modify(verbs.QpState.RESET)
    connect_endpoints(pair.a, pair.b, **attributes)


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Yields the processor until the condition holds. Fails the test at the deadline."""
    deadline = time.monotonic() + timeout_s
    for tries in itertools.count(1):
        if condition():
            return
        if time.monotonic() > deadline:
            pytest.fail(f"gave up after {timeout_s} s waiting for {what}")
        if tries % 64 == 0:  # the clock of the wire `fake` advances with each poll, on a busy machine too
            os.sched_yield()


def drain(cq: CompletionQueue, count: int, timeout_s: float = DEADLINE_S) -> list[WorkCompletion]:
    """Polls until there are exactly `count` completions."""
    found: list[WorkCompletion] = []

    def enough() -> bool:
        found.extend(cq.poll(max=count - len(found)))
        return len(found) >= count

    if count:
        wait_until(enough, f"{count} completions", timeout_s)
    return found


def statuses(completions: Sequence[WorkCompletion]) -> list[WcStatus]:
    return [completion.status for completion in completions]


def send(local: Any = (), **options: Any) -> SendWorkRequest:
    opcode = Opcode.SEND if options.get("immediate") is None else Opcode.SEND_WITH_IMM
    return SendWorkRequest(opcode=opcode, local=local, **options)


def write(local: Any, remote: verbs.RemoteMemory, **options: Any) -> SendWorkRequest:
    opcode = Opcode.WRITE if options.get("immediate") is None else Opcode.WRITE_WITH_IMM
    return SendWorkRequest(opcode=opcode, local=local, remote=remote, **options)


def read(local: Any, remote: verbs.RemoteMemory, **options: Any) -> SendWorkRequest:
    return SendWorkRequest(opcode=Opcode.READ, local=local, remote=remote, **options)


def compare_swap(local: Any, remote: verbs.RemoteMemory, compare: int, swap: int) -> SendWorkRequest:
    return SendWorkRequest(opcode=Opcode.COMPARE_SWAP, local=local, remote=remote, compare=compare, swap=swap)


def fetch_add(local: Any, remote: verbs.RemoteMemory, add: int) -> SendWorkRequest:
    return SendWorkRequest(opcode=Opcode.FETCH_ADD, local=local, remote=remote, add=add)


def word(memory: Any, offset: int = 0) -> int:
    """The 64-bit integer at `offset` of a region, in native byte order as atomics use it."""
    return int(memoryview(memory)[offset : offset + 8].cast("Q")[0])


def pattern(length: int, seed: int = 1) -> bytes:
    """Bytes without a short period, different for each seed."""
    block = bytes((i * i + i // 251 + seed * 37) % 256 for i in range(min(length, 65_521)))
    return (block * (length // max(1, len(block)) + 1))[:length]
