"""The two processes of a system in the benchmark `peers`: a target with memory, an initiator that transfers.

Each system has a module with the two roles. They run in an interpreter that has the system, which need not
have Verbena, and exchange lines of JSON with peers.py. Depends on the standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 16 << 20  # of either end
BATCH_BELOW = 4096  # shorter transfers are timed in batches, because reading the clock takes a tenth of one
BATCH = 16
PR_SET_PDEATHSIG = 1

Transfer = Callable[[], object]  # returns when the transfer has completed at both ends
Prepare = Callable[[str, int], Transfer]  # "read" or "write", length


class Requests:
    """The requests of peers.py. What a library prints to standard output goes to the log of errors."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a transfer without its peer may never end
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def answer(self, **content: Any) -> None:
        self._answers.write(json.dumps(content) + "\n")
        self._answers.flush()

    def next(self) -> Any:
        """Returns the next request. Ends the process if there is none."""
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        return json.loads(line)

    @staticmethod
    def is_waiting() -> bool:
        return bool(select.select([0], [], [], 0)[0])


def serve(requests: Requests, address: dict[str, Any], poll: Transfer | None = None) -> None:
    """Runs a target until peers.py ends it. Between the requests "poll" and "rest" it calls `poll`, for
    systems in which the target's processor takes part; otherwise it sleeps."""
    requests.answer(**address)
    while True:
        do = requests.next()
        requests.answer()
        while do == "poll" and poll is not None and not requests.is_waiting():
            for _ in range(100):
                poll()


def initiate(requests: Requests, local: memoryview, prepare: Prepare) -> None:
    """Runs an initiator until peers.py ends it. A request has operation, length and count; the answer is the
    duration of a transfer in nanoseconds, the median."""
    requests.answer()
    transfers: dict[tuple[str, int], Transfer] = {}
    while True:
        operation, length, count = requests.next()
        transfer = transfers.get((operation, length))
        if transfer is None:
            _verify(local, length, prepare)
            transfer = transfers[operation, length] = prepare(operation, length)
        requests.answer(ns=_median_ns(transfer, count, BATCH if length < BATCH_BELOW else 1))


def _verify(local: memoryview, length: int, prepare: Prepare) -> None:
    pattern = os.urandom(length)
    local[:length] = pattern
    prepare("write", length)()
    local[:length] = bytes(length)
    prepare("read", length)()
    if local[:length] != pattern:
        raise RuntimeError(f"a read of {length} bytes did not return what was written")


def _median_ns(transfer: Transfer, count: int, batch: int) -> float:
    samples, clock = array("d"), time.perf_counter_ns
    for _ in range(-(-count // batch)):
        start = clock()
        for _ in range(batch):
            transfer()
        samples.append((clock() - start) / batch)
    return sorted(samples)[len(samples) // 2]
