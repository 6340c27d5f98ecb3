"""The TCP dialogue of perftest's bandwidth programs (version 6.06), so that Verbena can be either side.

At each step the client sends first and the server answers in the same form: version, two sizes, the MTU, then
repeatedly the keys of both sides, which keeps the two in step, then the client's report, and "done".
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from support.rdma.link import DEADLINE_S

PORT = 18515
VERSION = b"6.06".ljust(16, b"\0")
CYCLE_BYTES, CACHE_LINE_BYTES = 4096, 64  # small operations step through this much memory in these steps
MTU, MTU_CODE = 1024, b"3\0"
DONE = b"done\0"


@dataclass(frozen=True)
class Keys:
    """What each side must know of the other. `reads` is the number of READs or atomics that it serves at
    once."""

    qp_num: int
    psn: int
    gid: bytes
    rkey: int = 0
    addr: int = 0
    reads: int = 1

    def to_bytes(self) -> bytes:
        """Hexadecimal fields with the widths that perftest's scanf expects, and a final zero byte."""
        fields = ["0000", f"{self.reads:04x}", f"{self.qp_num:06x}", f"{self.psn:06x}", f"{self.rkey:08x}"]
        fields += [f"{self.addr:016x}", *(f"{byte:02x}" for byte in self.gid), f"{0:08x}"]
        return ":".join(fields).encode() + b":\0"

    @classmethod
    def from_bytes(cls, data: bytes) -> Keys:
        _, reads, qp_num, psn, rkey, addr, *rest = (int(field, 16) for field in data.split(b":")[:-1])
        return cls(qp_num, psn, bytes(rest[:16]), rkey, addr, reads)


class Conversation:
    """One side of the dialogue, over a connected socket."""

    def __init__(self, link: socket.socket, *, calling: bool) -> None:
        self._link = link
        self._calling = calling
        link.settimeout(DEADLINE_S)

    def greet(self) -> None:
        """Agrees on everything that does not depend on the test."""
        self._swap(VERSION)
        self._swap(struct.pack(">i", CYCLE_BYTES))
        self._swap(struct.pack(">i", CACHE_LINE_BYTES))
        self._swap(MTU_CODE)

    def keys(self, ours: Keys) -> Keys:
        return Keys.from_bytes(self._swap(ours.to_bytes()))

    def report(self, size: int, count: int, mib_per_s: float) -> tuple[int, int, float]:
        """Exchanges size, number of operations and average bandwidth, and returns those of the other side."""
        answers = [
            self._swap(struct.pack(">Q", size)),
            self._swap(struct.pack(">Q", count)),
            self._swap(struct.pack(">d", 0)),
            self._swap(struct.pack(">d", mib_per_s)),
            self._swap(struct.pack(">d", 0)),
        ]
        theirs = struct.unpack(">QQddd", b"".join(answers))
        return theirs[0], theirs[1], theirs[3]

    def finish(self, ours: Keys) -> None:
        self.keys(ours)
        self._link.sendall(DONE)
        assert self._take(len(DONE)) == DONE

    def _swap(self, ours: bytes) -> bytes:
        if self._calling:
            self._link.sendall(ours)
            return self._take(len(ours))
        theirs = self._take(len(ours))
        self._link.sendall(ours)
        return theirs

    def _take(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self._link.recv(length - len(data))
            assert piece, "perftest has hung up"
            data += piece
        return data
