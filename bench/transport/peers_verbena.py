"""The two ends of Verbena in the benchmark `peers`: blocking operations of a session.

The target's memory is from node.allocate(); the initiator's is a numpy array, which nothing has registered.
"""

from __future__ import annotations

import functools
import sys

import numpy as np

import verbena
from bench.transport.peers_driver import MEMORY_BYTES, Requests, Transfer, initiate, serve
from verbena.transport import RemoteRegion, Settings


def target(requests: Requests) -> None:
    with verbena.sync.listen("127.0.0.1:0", config=Settings()) as listener:
        region = listener.node.allocate(MEMORY_BYTES)
        serve(requests, {"address": listener.address, "region": region.remote.to_bytes().hex()})


def initiator(requests: Requests, address: str, region: str, wire: str) -> None:
    remote = RemoteRegion.from_bytes(bytes.fromhex(region))
    memory = np.ones(MEMORY_BYTES, "u1")
    with verbena.sync.connect(address, wire=wire, config=Settings()) as session:

        def prepare(operation: str, length: int) -> Transfer:
            call = session.read_into if operation == "read" else session.write
            return functools.partial(call, remote[:length], memory[:length])

        initiate(requests, memoryview(memory), prepare)


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(Requests())
    else:
        initiator(Requests(), *sys.argv[2:])
