"""Protection domains: the scope in which memory regions and queue pairs can be used together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena.verbs.access import Access
from verbena.verbs.completion_queue import CompletionQueue
from verbena.verbs.memory_region import MemoryRegion
from verbena.verbs.memory_window import MemoryWindow
from verbena.verbs.queue_pair import QueuePair
from verbena.verbs.resource import Resource
from verbena.verbs.shared_receive_queue import SharedReceiveQueue

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.verbs.context import Context


class ProtectionDomain(Resource):
    """Creates regions, queue pairs and shared receive queues. Queue pairs cannot use regions of another
    domain. close() closes all that it created."""

    __slots__ = ("_native", "context")

    def __init__(self, context: Context, native: _native.ProtectionDomain) -> None:
        super().__init__()
        self.context = context
        self._native = native

    def register(
        self,
        buffer: Buffer,
        *,
        access: Access = Access.LOCAL_WRITE | Access.REMOTE_READ,
        pin: bool = False,
    ) -> MemoryRegion:
        """Registers a contiguous buffer (bytearray, numpy, mmap, array, memoryview) and keeps it until
        close(). RegistrationError if it is read-only and `access` writes, not contiguous, or cannot be
        pinned."""
        return self._adopt(MemoryRegion(self, buffer, 0, access, pin, False))

    def allocate(
        self, nbytes: int, *, access: Access = Access.ALL, huge_pages: bool = False, pin: bool = False
    ) -> MemoryRegion:
        """Allocates zeroed memory of the kind that suits the wire and registers it. Access it with
        memoryview() or numpy.frombuffer(). RegistrationError if it is not available or cannot be pinned."""
        return self._adopt(MemoryRegion(self, None, nbytes, access, pin, huge_pages))

    def _allocate_for(
        self, group: _native.MemoryGroup, nbytes: int, *, peer_access: Access, huge_pages: bool, pin: bool
    ) -> MemoryRegion:
        """allocate() for local use; peers of this group will get the access by other registrations."""
        local = Access.LOCAL_WRITE
        return self._adopt(
            MemoryRegion(self, None, nbytes, local, pin, huge_pages, peer_access=peer_access, group=group)
        )

    def bind_window(
        self, region: MemoryRegion, qp: QueuePair, *, access: Access = Access.REMOTE_READ
    ) -> MemoryWindow:
        """Lends a region, registered with Access.WINDOW, to the peer of a connected queue pair. Send the
        window's `remote` to the peer through that queue pair: a device binds the window in the order of its
        send queue. On a device without windows the key is valid on every queue pair of this domain; see its
        capability `memory_windows`."""
        native = _native.bind_window(self._native, region, qp._native, access)
        window = MemoryWindow(native, region=region, qp=qp)
        qp._adopt(window)
        return self._adopt(window)

    def create_srq(self, max_recv: int = 256, *, max_sge: int = 4) -> SharedReceiveQueue:
        """Creates a receive queue for several queue pairs of this domain."""
        return self._adopt(SharedReceiveQueue(self, self._native.create_srq(max_recv, max_sge)))

    def create_qp(
        self,
        send_cq: CompletionQueue,
        *,
        recv_cq: CompletionQueue | None = None,
        srq: SharedReceiveQueue | None = None,
        max_send: int = 128,
        max_recv: int = 128,
        max_send_sge: int = 4,
        max_recv_sge: int = 4,
        max_inline: int = 64,
        signal_all: bool = False,
    ) -> QueuePair:
        """Creates a queue pair in RESET. Without `recv_cq` its receives complete in `send_cq` too.
        The actual limits, in `qp.limits`, may be higher. StateError for more than the device supports."""
        recv_cq = recv_cq or send_cq
        native = self._native.create_qp(
            send_cq._native,
            recv_cq._native,
            srq._native if srq else None,
            max_send,
            max_recv,
            max_send_sge,
            max_recv_sge,
            max_inline,
            signal_all,
        )
        qp = QueuePair(self, native, send_cq=send_cq, recv_cq=recv_cq, srq=srq)
        # Registered with all of them, so that a queue is closed after the queue pairs that use it.
        for user in {id(parent): parent for parent in (self, send_cq, recv_cq, srq) if parent}.values():
            user._adopt(qp)
        return qp

    def _close_native(self) -> None:
        self._native.close()

    def __repr__(self) -> str:
        return f"<ProtectionDomain of {self.context!r}>"
