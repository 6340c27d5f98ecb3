"""A transfer between two queue pairs of one device. `transfer` runs it as a program in a separate process."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from verbena import errors, verbs
from verbena.cli.measure.link import view
from verbena.errors import VerbenaError
from verbena.verbs import Context, MemoryRegion, PortState, QueuePair, RecvWorkRequest, SendWorkRequest

LENGTH = 16 << 10  # fits the smallest usual memlock limit
ADDED = 7


def transfer(name: str, *, timeout_s: float) -> tuple[dict[str, int], dict[str, int]]:
    """Runs WRITE, READ, SEND and, if supported, FETCH_ADD, and compares every byte. Returns nanoseconds by
    operation and the wire's counters. Raises VerbenaError if one fails, times out or delivers wrong bytes."""
    with verbs.open_device(name) as context:
        return exchange(context, timeout_s=timeout_s), context.counts


def exchange(context: Context, *, timeout_s: float) -> dict[str, int]:
    """The operations of transfer(), on an open device."""
    with contextlib.ExitStack() as stack:
        pd = stack.enter_context(context.alloc_pd())
        near, far = (_queue_pair(context, pd, stack) for _ in range(2))
        ours, theirs = (stack.enter_context(pd.allocate(LENGTH)) for _ in range(2))
        _connect(context, near, far, stack, timeout_s)
        times = {}

        _fill(ours, 1)
        times["WRITE"] = _timed(lambda: near.sync.write(ours[:], theirs.remote, timeout_s=timeout_s))
        _compare("WRITE", ours, theirs)

        _fill(theirs, 2)
        times["READ"] = _timed(lambda: near.sync.read(ours[:], theirs.remote, timeout_s=timeout_s))
        _compare("READ", theirs, ours)

        _fill(ours, 3)
        far.post_recv(RecvWorkRequest(theirs[:], wr_id=1))
        times["SEND"] = _timed(lambda: _message(near, far, ours, timeout_s))
        _compare("SEND", ours, theirs)

        if not context.attributes.capabilities.get("atomics", "no").startswith("no"):
            word = view(theirs)[:8].cast("Q")
            before = word[0] = 41
            held: list[int] = []
            remote = theirs.remote[:8]
            times["FETCH_ADD"] = _timed(
                lambda: held.append(near.sync.fetch_add(remote, ADDED, timeout_s=timeout_s))
            )
            if held != [before] or word[0] != before + ADDED:
                _damaged("FETCH_ADD", f"{held[0]} was returned and {word[0]} is stored")
        return times


def main(arguments: list[str]) -> int:
    """Runs transfer() and prints the times, or the error, as one JSON object."""
    name, timeout_s = arguments
    answer: dict[str, Any]
    try:
        times, counts = transfer(name, timeout_s=float(timeout_s))
        answer = {"times": times, "counts": counts}
    except VerbenaError as failure:
        fields = ("what", "operation", "code", "causes", "remedy", "detail", "errno")
        answer = {"error": {field: getattr(failure, field) for field in fields}}
    print(json.dumps(answer))
    return 0


def _queue_pair(context: Context, pd: verbs.ProtectionDomain, stack: contextlib.ExitStack) -> QueuePair:
    send_cq, recv_cq = (stack.enter_context(context.create_cq(depth=16)) for _ in range(2))
    return stack.enter_context(
        pd.create_qp(send_cq=send_cq, recv_cq=recv_cq, max_send=8, max_recv=8, max_send_sge=1, max_recv_sge=1)
    )


def _connect(
    context: Context, near: QueuePair, far: QueuePair, stack: contextlib.ExitStack, timeout_s: float
) -> None:
    if context.attributes.transport == "iWARP":  # iWARP devices connect by address only
        listener = stack.enter_context(context.listen(""))
        caller = stack.enter_context(ThreadPoolExecutor(1))
        calling = caller.submit(context.connect_blocking, near, listener.address, timeout_s=timeout_s)
        stack.enter_context(listener.accept_blocking(timeout_s=timeout_s).accept_blocking(far))
        stack.enter_context(calling.result(timeout_s))
        return
    ports = context.attributes.ports
    active = (PortState.ACTIVE, PortState.ACTIVE_DEFER)
    number = next((place for place, port in enumerate(ports, 1) if port.state in active), 1)
    for one, other in ((near, far), (far, near)):
        endpoint = other.endpoint
        if number > 1:
            port = ports[number - 1]
            gid = next((gid for gid in port.gids if gid), endpoint.gid)
            endpoint = replace(endpoint, gid=gid, lid=port.lid)
        one.connect_to(endpoint, port=number)


def _message(near: QueuePair, far: QueuePair, local: MemoryRegion, timeout_s: float) -> None:
    # Posted, not awaited: the receiver must poll for the message to be delivered.
    near.post_send(SendWorkRequest(local=local[:]))
    for operation, queue in (("RECV", far.recv_cq), ("SEND", near.send_cq)):
        completions = queue.wait_blocking(timeout_s=timeout_s)
        if not completions:
            raise errors.completion_error(errors.WcStatus.RESP_TIMEOUT_ERR, operation=operation)
        completions[0].raise_for_status(operation)


def _timed(operation: Callable[[], None]) -> int:
    start = time.perf_counter_ns()
    operation()
    return time.perf_counter_ns() - start


def _fill(region: MemoryRegion, seed: int) -> None:
    view(region)[:] = bytes((i * i + i // 251 + seed * 37) % 256 for i in range(LENGTH))


def _compare(operation: str, sent: MemoryRegion, arrived: MemoryRegion) -> None:
    pairs = zip(view(sent), view(arrived), strict=True)
    wrong = sum(left != right for left, right in pairs)
    if wrong:
        _damaged(operation, f"{wrong} of {LENGTH} bytes differ")


def _damaged(operation: str, detail: str) -> None:
    raise errors.setup_error("bad_message", operation=operation, detail=detail)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
