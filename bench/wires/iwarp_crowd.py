"""Are a thousand connections over TCP all served by one progress thread, and what does an idle one cost?"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.figure import Figure, program
from verbena import verbs

CONNECTIONS = 1000
BOUND_KIB = 64
MESSAGE = 64
PATIENCE_S = 60.0
WARM_UP = 8


class Crowd:
    """Queue pairs of one device, each with a posted receive, and one completion queue for all."""

    def __init__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.context = verbs.open_device("iwarp:lo")
        self.pd = self.context.alloc_pd()
        self.cq = self.context.create_cq(depth=4 * CONNECTIONS)
        self.mail = self.pd.allocate(MESSAGE * 2 * CONNECTIONS)
        self.qps: list[verbs.QueuePair] = []
        self.connections: list[verbs.Connection] = []

    def add(self, connect: Callable[[verbs.QueuePair], verbs.Connection]) -> None:
        qp = self.pd.create_qp(send_cq=self.cq)
        self.connections.append(connect(qp))
        index = len(self.qps)
        qp.post_recv(verbs.RecvWorkRequest(self._slot(2 * index), wr_id=index))
        self.qps.append(qp)

    def send(self, index: int) -> None:
        self.qps[index].post_send(
            verbs.SendWorkRequest(verbs.Opcode.SEND, self._slot(2 * index + 1), wr_id=index)
        )

    def arrivals(self) -> list[int]:
        """Waits for completions; returns the indexes of queue pairs that received a message."""
        arrived = []
        for completion in self.cq.wait_blocking(max=256, timeout_s=PATIENCE_S):
            completion.raise_for_status(operation="serve a crowd")
            if completion.opcode == verbs.WcOpcode.RECV:
                arrived.append(completion.wr_id)
        return arrived

    def _slot(self, number: int) -> verbs.MemorySlice:
        return self.mail[number * MESSAGE : (number + 1) * MESSAGE]


def measure(options: argparse.Namespace) -> list[Figure]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.wires.iwarp_crowd", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        address = json.loads(server.stdout.readline())["address"]
        crowd = Crowd()
        _dial(crowd, address, WARM_UP)
        before = _resident_kib()
        server_before = json.loads(server.stdout.readline())["rss_kib"]
        _dial(crowd, address, CONNECTIONS)
        own_kib = (_resident_kib() - before) / (CONNECTIONS - WARM_UP)
        server_kib = (json.loads(server.stdout.readline())["rss_kib"] - server_before) / (
            CONNECTIONS - WARM_UP
        )
        start = time.monotonic()
        for index in range(CONNECTIONS):
            crowd.send(index)
        served: set[int] = set()
        while len(served) < CONNECTIONS:
            served.update(crowd.arrivals())
        elapsed_s = time.monotonic() - start
    finally:
        server.kill()
        server.wait()
    name = f"iwarp {CONNECTIONS:,} connections"
    return [
        Figure(
            f"{name}: served",
            f"{len(served):,}",
            f"one round trip each in {elapsed_s * 1e3:.0f} ms",
            "–",
            f"{CONNECTIONS:,}",
            len(served) == CONNECTIONS,
        ),
        *(
            Figure(
                f"{name}: memory of an idle one, {end}",
                f"{kib:.1f} KiB",
                "resident set",
                "–",
                f"≤ {BOUND_KIB} KiB",
                kib <= BOUND_KIB,
            )
            for end, kib in (("dialling end", own_kib), ("accepting end", server_kib))
        ),
    ]


def _dial(crowd: Crowd, address: str, count: int) -> None:
    while len(crowd.qps) < count:
        crowd.add(lambda qp: crowd.context.connect_blocking(qp, address, timeout_s=PATIENCE_S))


def serve() -> None:
    """The server process: accepts all connections, reports its memory, then answers each message with one."""
    crowd = Crowd()
    with crowd.context.listen("", backlog=CONNECTIONS) as listener:
        _say(address=listener.address)
        while len(crowd.qps) < CONNECTIONS:
            request = listener.accept_blocking(timeout_s=PATIENCE_S)
            crowd.add(request.accept_blocking)
            if len(crowd.qps) in (WARM_UP, CONNECTIONS):
                _say(rss_kib=_resident_kib())
        while True:
            for index in crowd.arrivals():
                crowd.send(index)


def _say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _resident_kib() -> int:
    gc.collect()
    status = Path(f"/proc/{os.getpid()}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        program(measure, description=__doc__ or "")
