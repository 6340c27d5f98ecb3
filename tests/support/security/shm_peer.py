"""A process on the shm wire that speaks the control protocol below the API: it claims any GID, sends any
message and keeps what it receives. `src/native/providers/shm/control_layout.h` describes the messages."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from verbena.transport import Listener
from verbena.verbs import Context

HEADER = struct.Struct("<IHHIIQQHHI")  # ControlHeader
HELLO_PAYLOAD = struct.Struct("<16sQ")  # Hello: GID and nonce
MAGIC, VERSION = 0x4D534256, 3
HELLO, REFUSE, ARENA, ATTACH, ATTACHED = 1, 2, 3, 5, 6
CONNECT, REJECT, ACCESS, WAKE, CLAIM, CLAIMED = 7, 9, 12, 13, 14, 15
RING_BYTES, RING_MAGIC = 577_536, 0x32676E6972627276
REGION_TABLE_BYTES = 4 << 20
WAIT_S = 0.5


@dataclass
class Received:
    """A control message; `descriptors` are closed by the peer's close()."""

    kind: int
    connection_id: int
    argument: int
    payload: bytes
    descriptors: list[int] = field(default_factory=list)


def gid_of(context: Context) -> bytes:
    (gid,) = context.attributes.ports[0].gids
    return bytes(gid)


def gid_of_listener(listener: Listener) -> bytes:
    return gid_of(listener.node.wires["shm"].context)


def node_address(gid: bytes) -> bytes:
    return b"\0verbena-shm-" + gid.hex().encode()


def make_memory(size: int, *, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) -> int:
    """A sealed memfd, as the provider demands it of its peers."""
    memory = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def make_ring() -> int:
    """A ring as a queue pair of the provider makes it."""
    ring = make_memory(RING_BYTES)
    os.pwrite(ring, struct.pack("<Q", RING_MAGIC), 0)
    return ring


class ShmPeer:
    """A link to the process at `gid`. `claimed`: the GID in the own hello; default: one that is its own, at
    whose address it listens and confirms its links. A context manager."""

    def __init__(self, gid: bytes, *, claimed: bytes | None = None) -> None:
        self.gid = claimed or bytes([0xFD, 1, 2, 3, 4, 5, 6, 7]) + secrets.token_bytes(8)
        self.nonce = secrets.randbits(64)
        self._kept: list[int] = []
        self._sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
        self.control = self._sockets[0]
        self.control.settimeout(WAIT_S)
        self.control.connect(node_address(gid))
        self.own_address: socket.socket | None = None
        if claimed is None:
            self.own_address = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sockets.append(self.own_address)
            self.own_address.settimeout(WAIT_S)
            self.own_address.bind(node_address(self.gid))
            self.own_address.listen()

    def send(
        self, kind: int, payload: bytes = b"", *, descriptors: tuple[int, ...] = (), **fields: int
    ) -> None:
        self._send(self.control, kind, payload, descriptors, **fields)

    def hello(self) -> None:
        self.send(HELLO, HELLO_PAYLOAD.pack(self.gid, self.nonce))

    def receive(self) -> Received | None:
        """The next message. None: nothing came in time. EOFError: the process has closed the link."""
        return self._receive(self.control)

    def receive_all(self) -> list[Received]:
        """All messages until none comes, or the link is closed."""
        found = []
        with contextlib.suppress(EOFError):
            while (message := self.receive()) is not None:
                found.append(message)
        return found

    def attach(self, qp_number: int, *, from_qp: int = 7) -> None:
        """Asks for the ring of a queue pair, and proves the own GID if it can."""
        ring = make_ring()
        self._kept.append(ring)
        self.send(ATTACH, from_qp=from_qp, to_qp=qp_number, descriptors=(ring,))
        if self.own_address is not None:
            self._prove()

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        for descriptor in self._kept:
            os.close(descriptor)
        self._sockets, self._kept = [], []

    def __enter__(self) -> ShmPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prove(self) -> None:
        assert self.own_address is not None
        proof, _ = self.own_address.accept()
        self._sockets.append(proof)
        proof.settimeout(WAIT_S)
        self._send(proof, HELLO, HELLO_PAYLOAD.pack(self.gid, secrets.randbits(64)), ())
        while (message := self._receive(proof)) is not None and message.kind != CLAIM:
            continue
        assert message is not None
        assert message.connection_id == self.nonce
        self._send(proof, CLAIMED, b"", (), connection_id=self.nonce)

    def _send(
        self,
        through: socket.socket,
        kind: int,
        payload: bytes,
        descriptors: tuple[int, ...],
        *,
        from_qp: int = 0,
        to_qp: int = 0,
        connection_id: int = 0,
        argument: int = 0,
        service: bytes = b"",
    ) -> None:
        header = HEADER.pack(
            MAGIC, VERSION, kind, from_qp, to_qp, connection_id, argument, len(service), len(payload), 0
        )
        socket.send_fds(through, [header + service + payload], list(descriptors))

    def _receive(self, through: socket.socket) -> Received | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(through, 2048, 4)
        except TimeoutError:
            return None
        except ConnectionError as error:
            raise EOFError from error
        self._kept += descriptors
        if not data:
            raise EOFError
        magic, _, kind, _, _, connection_id, argument, service, _, _ = HEADER.unpack_from(data)
        assert magic == MAGIC
        return Received(kind, connection_id, argument, data[HEADER.size + service :], descriptors)


@contextlib.contextmanager
def mapped(descriptor: int, *, writable: bool) -> Iterator[Any]:
    """A mapping of received memory."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    with mmap.mmap(descriptor, os.fstat(descriptor).st_size, mmap.MAP_SHARED, access) as memory:
        yield memory
