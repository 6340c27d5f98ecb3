"""The two ends of NIXL in the benchmark `peers`: an agent each, with the backend UCX.

Without a progress thread, which spins on a processor that the two ends need: the initiator polls its request,
and the target polls where UCX copies in software. Without UCX's error handling, which excludes shared memory.
"""

from __future__ import annotations

import sys

import numpy as np
from nixl import nixl_agent, nixl_agent_config

from bench.transport.peers_driver import MEMORY_BYTES, Requests, Transfer, initiate, serve

NAMES = {"read": "READ", "write": "WRITE"}


class End:
    """An agent with registered memory."""

    def __init__(self, name: str) -> None:
        self.agent = nixl_agent(name, nixl_agent_config(backends=[], enable_prog_thread=False))
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": "none"})
        self.memory = np.ones(MEMORY_BYTES, "u1")
        self.address: int = self.memory.ctypes.data
        self.agent.register_memory([(self.address, MEMORY_BYTES, 0, "")], "DRAM")


def target(requests: Requests) -> None:
    end = End("target")
    where = {"metadata": end.agent.get_agent_metadata().hex(), "address": end.address}
    serve(requests, where, end.agent.get_new_notifs)


def initiator(requests: Requests, metadata: str, address: str) -> None:
    end = End("initiator")
    agent = end.agent
    peer = agent.add_remote_agent(bytes.fromhex(metadata))

    def prepare(operation: str, length: int) -> Transfer:
        local = agent.get_xfer_descs([(end.address, length, 0)], "DRAM")
        remote = agent.get_xfer_descs([(int(address), length, 0)], "DRAM")
        handle = agent.initialize_xfer(NAMES[operation], local, remote, peer)
        start, check = agent.transfer, agent.check_xfer_state

        def transfer() -> None:
            state = start(handle)
            while state == "PROC":
                state = check(handle)
            if state != "DONE":
                raise RuntimeError(f"NIXL: {operation} of {length} bytes ended as {state}")

        return transfer

    initiate(requests, memoryview(end.memory), prepare)


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(Requests())
    else:
        initiator(Requests(), *sys.argv[2:])
