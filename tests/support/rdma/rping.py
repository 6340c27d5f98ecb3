"""The protocol of rdma-core's rping over the public verbs: both sides, on any wire with a connection manager.

The client sends the address of its text, and the server READs it and confirms; the client sends the address
of empty memory, and the server WRITEs the text there and confirms. The peer is the real rping or this one.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess

from support.rdma.link import DEADLINE_S, REMOTE_ALL
from verbena.errors import WcStatus
from verbena.verbs import (
    Context,
    Listener,
    MemoryRegion,
    QpState,
    RecvWorkRequest,
    RemoteMemory,
    SendWorkRequest,
)

PORT = 7174
MOST = 65_535  # largest text that rping accepts
# The message with which the real client may end: its own thread finds the event channel closed, and it exits
# with 255 although all went well. A mismatch or an error before that has a message of its own.
LEAVING = {"client DISCONNECT EVENT...", "rdma_get_cm_event: Bad file descriptor"}
# address, key, length; the server's messages have the same length, and their content is ignored
NAMED = struct.Struct(">QII")


def has_finished(client: subprocess.CompletedProcess[str]) -> bool:
    """True if the real rping, as a client, has completed all its work."""
    raced = client.returncode == 255 and set(client.stderr.splitlines()) == LEAVING
    return client.returncode == 0 or raced


def ping(context: Context, address: str, *, count: int = 3, size: int = 64) -> list[bytes]:
    """The client, which closes the connection. Returns what came back for each text()."""
    echoes = []
    with (
        contextlib.closing(_Side(context, size)) as side,
        side.pd.allocate(size) as source,
        context.connect_blocking(side.qp, address, timeout_s=DEADLINE_S),
    ):
        for number in range(count):
            memoryview(source)[:] = text(number, size)
            for memory in (source, side.data):
                side.name(memory)
                assert side.hears() is not None, "the server went away in the middle of a ping"
            echoes.append(bytes(memoryview(side.data)))
    return echoes


def answer(listener: Listener, *, size: int = 64) -> list[bytes]:
    """The server of one client, until that client closes the connection. Returns the texts that it read."""
    request = listener.accept_blocking(timeout_s=DEADLINE_S)
    texts = []
    with (
        contextlib.closing(_Side(listener.context, size)) as side,
        request.accept_blocking(side.qp, timeout_s=DEADLINE_S),
    ):
        while (source := side.hears()) is not None:
            part = side.data[: source.length]
            side.qp.sync.read(part, source, timeout_s=DEADLINE_S)
            texts.append(bytes(memoryview(side.data)[: source.length]))
            side.name(side.data)
            sink = side.hears()
            assert sink is not None, "the client went away in the middle of a ping"
            side.qp.sync.write(part, sink, timeout_s=DEADLINE_S)
            side.name(side.data)
    return texts


def text(number: int, size: int) -> bytes:
    """What rping's own client sends: a prefix, a run of letters, and the final zero byte of a C string."""
    head = f"rdma-ping-{number}: ".encode()
    letters = bytes(65 + (number + i) % 58 for i in range(max(0, size - len(head) - 1)))
    return (head + letters)[: size - 1] + b"\0"


class _Side:
    """A queue pair with one receive posted before the connection is made, as in rping."""

    def __init__(self, context: Context, size: int) -> None:
        self.pd = context.alloc_pd()
        self.cq, self.inbox_cq = context.create_cq(depth=32), context.create_cq(depth=4)
        self.qp = self.pd.create_qp(self.cq, recv_cq=self.inbox_cq, max_send=16, max_recv=2)
        self.data = self.pd.allocate(size)
        self.outbox, self.inbox = self.pd.allocate(NAMED.size), self.pd.allocate(NAMED.size)
        self.qp.modify(QpState.INIT, port=1, pkey_index=0, access_flags=REMOTE_ALL)
        self._expect()

    def close(self) -> None:
        for resource in (self.pd, self.cq, self.inbox_cq):
            resource.close()

    def name(self, memory: MemoryRegion) -> None:
        """Sends the peer the address of some memory. Does not wait for the completion: the peer's answer
        implies it, and after the last message the client may be gone before its acknowledgement arrives."""
        for earlier in self.cq.poll():
            earlier.raise_for_status("send")
        memoryview(self.outbox)[:] = NAMED.pack(memory.addr, memory.rkey, memory.length)
        self.qp.post_send(SendWorkRequest(local=self.outbox))

    def hears(self) -> RemoteMemory | None:
        """Receives the peer's next message; None if it has closed the connection instead."""
        found = self.inbox_cq.wait_blocking(max=1, timeout_s=DEADLINE_S)
        assert found, "the peer says nothing"
        if found[0].status is WcStatus.WR_FLUSH_ERR:
            return None
        found[0].raise_for_status("recv")
        assert found[0].byte_count == NAMED.size
        addr, rkey, length = NAMED.unpack(memoryview(self.inbox))
        self._expect()
        return RemoteMemory(addr, rkey, length)

    def _expect(self) -> None:
        self.qp.post_recv(RecvWorkRequest(local=self.inbox))
