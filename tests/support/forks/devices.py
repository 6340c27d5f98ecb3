"""Verbs objects as inherited objects."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy

from support.forks.subject import TIMEOUT_S, Subject
from verbena import verbs


class Verbs(Subject):
    """Two connected queue pairs of this process."""

    def __init__(self, address: str, wire: str) -> None:
        super().__init__()
        self.context = context = verbs.open_device(wire)
        self.pd = pd = context.alloc_pd()
        self.cq = cq = context.create_cq(64)
        self.qps = [pd.create_qp(cq, max_send=8, max_recv=8) for _ in range(2)]
        self.listener = context.listen("127.0.0.1:0" if wire != "shm" else "")
        accepted: list[Any] = []
        accepting = threading.Thread(
            target=lambda: accepted.append(self.listener.accept_blocking(20).accept_blocking(self.qps[1]))
        )
        accepting.start()
        self.connection = context.connect_blocking(self.qps[0], self.listener.address)
        accepting.join()
        self.accepted = accepted[0]
        self.memory = memory = pd.allocate(4096)
        self.room = room = pd.register(bytearray(4096))
        qp = self.qps[0]

        async def send() -> None:
            await qp.send(b"child", inline=True)

        async def wait() -> None:
            await cq.wait()

        self.refused = {
            "read": lambda: qp.sync.read(room[:8], memory.remote[:8]),
            "write": lambda: qp.sync.write(room[:8], memory.remote[:8]),
            "send": lambda: qp.sync.send(b"child"),
            "async send": lambda: asyncio.run(send()),
            "read_many": lambda: qp.sync.read_many(room, memory.remote, numpy.zeros((1, 3), "uint64")),
            "post_send": lambda: qp.post_send(verbs.SendWorkRequest(verbs.Opcode.SEND, 1, [room[:8]])),
            "poll": cq.poll,
            "wait": lambda: asyncio.run(wait()),
            "wait_blocking": cq.wait_blocking,
            "modify": lambda: qp.modify(verbs.QpState.ERR),
            "state": lambda: qp.state,
            "alloc_pd": context.alloc_pd,
            "create_qp": lambda: pd.create_qp(cq),
            "register": lambda: pd.register(bytearray(16)),
            "listen": context.listen,
            "accept": self.listener.accept_blocking,
            "connection": lambda: self.connection.state,
        }

        def own() -> None:
            with verbs.open_device(wire) as another, another.alloc_pd() as mine:
                assert mine.allocate(4096).length == 4096

        objects = (context, pd, cq, qp, self.listener, self.connection, memory)
        self.allowed = {"repr": lambda: list(map(repr, objects)), "a device of its own": own}

    def check(self, number: int) -> None:
        memoryview(self.memory)[:8] = number.to_bytes(8, "little")
        self.qps[0].sync.read(self.room[:8], self.memory.remote[:8], timeout_s=TIMEOUT_S)
        assert int.from_bytes(memoryview(self.room)[:8], "little") == number

    def close(self) -> None:
        self.connection.disconnect()
        self.memory.close()
        self.context.close()
