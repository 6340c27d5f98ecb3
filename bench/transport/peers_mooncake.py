"""The two ends of Mooncake in the benchmark `peers`: a transfer engine each, over TCP."""

from __future__ import annotations

import sys

import numpy as np
from mooncake.engine import TransferEngine

from bench.transport.peers_driver import MEMORY_BYTES, Requests, Transfer, initiate, serve


class End:
    """An engine with registered memory."""

    def __init__(self) -> None:
        self.engine = TransferEngine()
        self._check("initialize", self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
        self.memory = np.ones(MEMORY_BYTES, "u1")
        self.address: int = self.memory.ctypes.data
        self._check("register_memory", self.engine.register_memory(self.address, MEMORY_BYTES))

    @staticmethod
    def _check(what: str, status: int) -> None:
        if status:
            raise RuntimeError(f"Mooncake: {what} returned {status}")

    def prepare_with(self, peer: str, remote: int, operation: str, length: int) -> Transfer:
        engine, local, check = self.engine, self.address, self._check
        call = engine.transfer_sync_read if operation == "read" else engine.transfer_sync_write
        return lambda: check(operation, call(peer, local, remote, length))


def target(requests: Requests) -> None:
    end = End()
    serve(requests, {"peer": f"127.0.0.1:{end.engine.get_rpc_port()}", "address": end.address})


def initiator(requests: Requests, peer: str, address: str) -> None:
    end = End()
    initiate(
        requests,
        memoryview(end.memory),
        lambda operation, length: end.prepare_with(peer, int(address), operation, length),
    )


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(Requests())
    else:
        initiator(Requests(), *sys.argv[2:])
