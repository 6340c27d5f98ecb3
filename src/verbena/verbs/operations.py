"""The asyncio operations of a queue pair. Each returns after its completion.
An operation that completes while it is posted returns without suspending: a loop of such operations should
`await asyncio.sleep(0)` regularly, so that other tasks run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from verbena import _native, _threads
from verbena._native import FULL, MemorySlice, Opcode, RemoteMemory, WorkCompletion

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    from verbena.verbs.completion_queue import CompletionQueue
    from verbena.verbs.memory_region import MemoryRegion

    Piece: TypeAlias = MemorySlice | MemoryRegion
    Local: TypeAlias = Piece | Sequence[Piece]

WORD = 2**64 - 1
ROOM_RETRY_S = 0.002  # unsignalled requests make room without a completion


class Received(NamedTuple):
    """The length of a received message, and its immediate if it has one."""

    byte_count: int
    immediate: int | None


class AsyncOperations:
    """A mixin of QueuePair. A failed operation raises the error of its status and leaves the queue pair in
    ERR. If the queue is full, operations wait. A cancelled operation continues on the wire, and its memory is
    kept until it ends."""

    __slots__ = ()

    _native: _native.QueuePair
    send_cq: CompletionQueue
    recv_cq: CompletionQueue

    async def send(
        self,
        local: Local | bytes,
        *,
        immediate: int | None = None,
        inline: bool = False,
        solicited: bool = False,
    ) -> None:
        """Sends a message; returns when it is in a receive of the peer. `bytes` are sent inline, without
        registration."""
        token = self._native.start_send(local, immediate, inline, solicited)
        if token is not None:
            start = self._native.start_send
            await self._finish(self.send_cq, "send", token, local, start, local, immediate, inline, solicited)

    async def recv(self, local: Local) -> Received:
        """Posts a receive and returns the length and the immediate of its message."""
        token = self._native.start_recv(local)
        if isinstance(token, int):
            token = await self._finish(self.recv_cq, "recv", token, local, self._native.start_recv, local)
        return Received(token.byte_count, token.immediate)

    async def read(self, local: Local, remote: RemoteMemory) -> None:
        """Reads the peer's memory into `local`, for the length of `local`."""
        token = self._native.start_read(local, remote)
        if token is not None:
            await self._finish(self.send_cq, "read", token, local, self._native.start_read, local, remote)

    async def write(
        self,
        local: Local | bytes,
        remote: RemoteMemory,
        *,
        immediate: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Writes to the peer's memory. The peer is notified only with an `immediate`, which consumes one of
        its receives."""
        token = self._native.start_write(local, remote, immediate, solicited)
        if token is not None:
            start = self._native.start_write
            await self._finish(
                self.send_cq, "write", token, local, start, local, remote, immediate, solicited
            )

    async def compare_swap(self, remote: RemoteMemory, expected: int, desired: int) -> int:
        """Stores `desired` in the peer's 8 bytes if they contain `expected`; returns the previous value."""
        return await self._atomic(Opcode.COMPARE_SWAP, remote, expected & WORD, desired & WORD)

    async def fetch_add(self, remote: RemoteMemory, delta: int) -> int:
        """Adds `delta` to the peer's 8 bytes, modulo 2**64; returns the previous value."""
        return await self._atomic(Opcode.FETCH_ADD, remote, delta & WORD, 0)

    async def read_many(self, local: Piece, remote: RemoteMemory, operations: Buffer) -> int:
        """Runs sync.read_many() in a worker thread."""
        return await _threads.transfers.run(self._native.run_many, Opcode.READ, local, remote, operations)

    async def write_many(self, local: Piece, remote: RemoteMemory, operations: Buffer) -> int:
        """Runs sync.write_many() in a worker thread."""
        return await _threads.transfers.run(self._native.run_many, Opcode.WRITE, local, remote, operations)

    async def _atomic(self, opcode: Opcode, remote: RemoteMemory, compare_add: int, swap: int) -> int:
        token, result = self._native.start_atomic(opcode, remote, compare_add, swap)
        if token == FULL:

            def attempt() -> tuple[int | None, _native.AtomicResult] | None:
                started = self._native.start_atomic(opcode, remote, compare_add, swap)
                return None if started[0] == FULL else started

            started = await self.send_cq._events.until(attempt, every_s=ROOM_RETRY_S)
            assert started is not None  # there was no time-out
            token, result = started
        if token is not None:
            completion = await self.send_cq._events.completion(token, result)
            completion.raise_for_status(opcode.name.lower(), self._native.peer)
        return result.value

    async def _finish(
        self,
        cq: CompletionQueue,
        operation: str,
        token: int,
        keep: object,
        start: Callable[..., Any],
        *arguments: object,
    ) -> Any:
        """Waits for a started operation and raises its error. If the queue was full, starts it first."""
        if token == FULL:
            # In a tuple, since the token of an operation that has completed already is None.
            def attempt() -> tuple[Any] | None:
                started = start(*arguments)
                return None if started == FULL else (started,)

            found = await cq._events.until(attempt, every_s=ROOM_RETRY_S)
            assert found is not None  # there was no time-out
            (begun,) = found
            if begun is None or isinstance(begun, WorkCompletion):
                return begun
            token = begun
        completion = await cq._events.completion(token, keep)
        completion.raise_for_status(operation, self._native.peer)
        return completion
