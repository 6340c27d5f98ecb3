"""The second process of a two-process test: executes commands from a pipe, one at a time. See peer.py."""

from __future__ import annotations

import array
import contextlib
import mmap
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from verbena import verbs
from verbena.errors import QueueFullError
from verbena.verbs import Access, MemoryRegion, Opcode, RecvWorkRequest, SendWorkRequest


class Peer:
    """Owns one queue pair and its regions. Each public method is a command."""

    def __init__(self, provider: str) -> None:
        self.context = verbs.open_device(provider)
        self.pd = self.context.alloc_pd()
        self.cq = self.context.create_cq(depth=4096)
        self.recv_cq = self.context.create_cq(depth=4096)
        self.qp = self.pd.create_qp(send_cq=self.cq, recv_cq=self.recv_cq, max_send=256, max_recv=1024)
        self.regions: list[MemoryRegion] = []
        self.buffers: list[Any] = []
        self.connection: Any = None

    def endpoint(self) -> bytes:
        return self.qp.endpoint.to_bytes()

    def connect_to(self, endpoint: bytes, **attributes: Any) -> None:
        self.qp.connect_to(verbs.Endpoint.from_bytes(endpoint), **attributes)

    def listen(self, address: str) -> str:
        self.listener = self.context.listen(address)
        return self.listener.address

    def accept(self, timeout_s: float) -> bytes:
        request = self.listener.accept_blocking(timeout_s=timeout_s)
        self.connection = request.accept_blocking(self.qp, private_data=b"from the peer")
        return request.private_data

    def connect(self, address: str) -> None:
        self.connection = self.context.connect_blocking(self.qp, address, timeout_s=10.0)

    def disconnect(self) -> None:
        self.connection.disconnect()

    def region(self, kind: str, content: bytes, access: int = int(Access.ALL), own_pd: bool = False) -> bytes:
        """Registers memory of a kind with this content, and returns its RemoteMemory."""
        pd = self.context.alloc_pd() if own_pd else self.pd
        if kind == "arena":
            mr = pd.allocate(len(content), access=Access(access))
            memoryview(mr)[:] = content
        else:
            buffer = {"bytearray": bytearray, "numpy": self._numpy, "mmap": self._mmap, "array": self._array}[
                kind
            ](content)
            self.buffers.append(buffer)
            mr = pd.register(buffer, access=Access(access))
        self.regions.append(mr)
        return mr.remote.to_bytes()

    def content(self, index: int) -> bytes:
        return bytes(memoryview(self.regions[index]))

    def free(self, index: int) -> None:
        self.regions[index].close()

    def receive(self, index: int, count: int) -> None:
        self.qp.post_recv(*(RecvWorkRequest(local=self.regions[index], wr_id=i) for i in range(count)))

    def wait_received(self, count: int) -> list[tuple[int, int, int, int | None]]:
        found: list[tuple[int, int, int, int | None]] = []
        while len(found) < count:
            batch = self.recv_cq.wait_blocking(max=count - len(found), timeout_s=20.0)
            if not batch:
                break
            found += [(c.wr_id, int(c.status), c.byte_count, c.immediate) for c in batch]
        return found

    def write(self, content: bytes, remote: bytes, immediate: int | None = None) -> None:
        with self.pd.allocate(len(content)) as mr:
            memoryview(mr)[:] = content
            self.qp.sync.write(mr, verbs.RemoteMemory.from_bytes(remote), immediate=immediate, timeout_s=10.0)

    def add_often(self, remote: bytes, times: int) -> None:
        for _ in range(times):
            self.qp.sync.fetch_add(verbs.RemoteMemory.from_bytes(remote), 1, timeout_s=10.0)

    def spin(self) -> str:
        """Answers first, and then holds the GIL in an endless loop."""
        return "spinning"

    def flood(self, remote: bytes) -> str:
        """Answers first, and then sends, writes and reads endlessly."""
        return "flooding"

    def drink(self) -> str:
        """Answers first, and then receives endlessly."""
        return "drinking"

    def after_spin(self) -> None:
        sys.setswitchinterval(1000)
        while True:
            pass

    def after_flood(self, remote: bytes) -> None:
        target = verbs.RemoteMemory.from_bytes(remote)
        local = self.pd.allocate(target.length)
        kinds = (Opcode.WRITE, Opcode.READ, Opcode.SEND)
        requests = [
            SendWorkRequest(opcode=k, local=local, remote=None if k is Opcode.SEND else target) for k in kinds
        ]
        while True:
            with contextlib.suppress(QueueFullError):
                self.qp.post_send(*requests)
            self.cq.poll()

    def after_drink(self) -> None:
        inbox = self.pd.allocate(65_536)
        request = RecvWorkRequest(local=inbox)
        while True:
            with contextlib.suppress(QueueFullError):
                self.qp.post_recv(*[request] * 16)
            self.recv_cq.poll(max=64)

    @staticmethod
    def _numpy(content: bytes) -> Any:
        import numpy as np

        return np.frombuffer(content, dtype=np.uint8).copy()

    @staticmethod
    def _mmap(content: bytes) -> mmap.mmap:
        mapped = mmap.mmap(-1, len(content))
        mapped[:] = content
        return mapped

    @staticmethod
    def _array(content: bytes) -> array.array[int]:
        return array.array("B", content)


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    peer = Peer(sys.argv[2])
    pipe.send(("ok", "ready"))
    while True:
        try:
            name, arguments, options = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("ok", getattr(peer, name)(*arguments, **options)))
        except Exception:
            pipe.send(("error", traceback.format_exc()))
            continue
        if hasattr(peer, f"after_{name}"):
            getattr(peer, f"after_{name}")(*arguments, **options)


if __name__ == "__main__":
    main()
