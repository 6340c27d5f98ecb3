"""The blocking operations of a queue pair, for threads. Each returns after its completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena._native import Opcode, RemoteMemory
from verbena.verbs.operations import WORD, Received

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.verbs.operations import Local, Piece

FOREVER = -1.0


class SyncOperations:
    """`qp.sync`: waits without the GIL, first spinning, then sleeping; Ctrl-C interrupts. Errors as for the
    asyncio operations, and TimedOutError after `timeout_s`: the operation then continues on the wire, and its
    memory is kept until it ends."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.QueuePair) -> None:
        self._native = native

    def send(
        self,
        local: Local | bytes,
        *,
        immediate: int | None = None,
        inline: bool = False,
        solicited: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a message; returns when it is in a receive of the peer. `bytes` are sent inline, without
        registration."""
        self._native.send(local, immediate, inline, solicited, FOREVER if timeout_s is None else timeout_s)

    def recv(self, local: Local, *, timeout_s: float | None = None) -> Received:
        """Posts a receive and returns the length and the immediate of its message."""
        completion = self._native.recv(local, FOREVER if timeout_s is None else timeout_s)
        return Received(completion.byte_count, completion.immediate)

    def read(self, local: Local, remote: RemoteMemory, *, timeout_s: float | None = None) -> None:
        """Reads the peer's memory into `local`, for the length of `local`."""
        self._native.read(local, remote, FOREVER if timeout_s is None else timeout_s)

    def write(
        self,
        local: Local | bytes,
        remote: RemoteMemory,
        *,
        immediate: int | None = None,
        solicited: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Writes to the peer's memory. The peer is notified only with an `immediate`, which consumes one of
        its receives."""
        self._native.write(local, remote, immediate, solicited, FOREVER if timeout_s is None else timeout_s)

    def compare_swap(
        self, remote: RemoteMemory, expected: int, desired: int, *, timeout_s: float | None = None
    ) -> int:
        """Stores `desired` in the peer's 8 bytes if they contain `expected`; returns the previous value."""
        timeout_s = FOREVER if timeout_s is None else timeout_s
        return self._native.atomic(Opcode.COMPARE_SWAP, remote, expected & WORD, desired & WORD, timeout_s)

    def fetch_add(self, remote: RemoteMemory, delta: int, *, timeout_s: float | None = None) -> int:
        """Adds `delta` to the peer's 8 bytes, modulo 2**64; returns the previous value."""
        timeout_s = FOREVER if timeout_s is None else timeout_s
        return self._native.atomic(Opcode.FETCH_ADD, remote, delta & WORD, 0, timeout_s)

    def read_many(self, local: Piece, remote: RemoteMemory, operations: Buffer) -> int:
        """Runs a READ for each row (local offset, remote offset, length) of a C-contiguous (n, 3) buffer of
        uint64; returns n. The error of a failed row has `completed` (rows that succeeded) and `index` (the
        row). StateError if a row is out of range; then nothing is read."""
        return self._native.run_many(Opcode.READ, local, remote, operations)

    def write_many(self, local: Piece, remote: RemoteMemory, operations: Buffer) -> int:
        """Runs a WRITE for each row; otherwise as read_many()."""
        return self._native.run_many(Opcode.WRITE, local, remote, operations)
