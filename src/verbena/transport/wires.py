"""The wires of a node: opened once, each with the queues and buffers that all sessions on it share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verbena import _native, verbs
from verbena.errors import VerbenaError
from verbena.transport.settings import Settings


@dataclass(frozen=True)
class Wire:
    """An opened wire."""

    name: str
    context: verbs.Context
    pd: verbs.ProtectionDomain
    cq: verbs.CompletionQueue
    srq: verbs.SharedReceiveQueue
    port: _native.transport.Port
    settings: Settings

    def create_qp(self) -> verbs.QueuePair:
        """A queue pair for a link."""
        device = self.context.attributes
        settings = self.settings
        return self.pd.create_qp(
            self.cq,
            srq=self.srq,
            max_send=min(settings.send_queue_depth, device.max_qp_wr),
            max_recv=1,
            max_send_sge=1,
            max_recv_sge=1,
            max_inline=min(settings.inline_threshold, device.max_inline),
        )


class Wires:
    """Opens wires when they are first wanted, and remembers why one could not be."""

    def __init__(self, native: _native.transport.Node, settings: Settings) -> None:
        self._native = native
        self._settings = settings
        self._open: dict[str, Wire] = {}
        self.reasons: dict[str, str] = {}
        for name in settings.wires:
            self._try_open(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are open, best first."""
        return tuple(self._open)

    def __getitem__(self, name: str) -> Wire:
        return self._open[name]

    def __iter__(self) -> Iterator[Wire]:
        return iter(self._open.values())

    def _try_open(self, name: str) -> None:
        settings = self._settings
        device = settings.devices.get(name, "")
        try:
            options = {"options": settings.iwarp} if name == "iwarp" and settings.iwarp else {}
            context = settings.open_device(f"{name}:{device}" if device else name, **options)
        except VerbenaError as error:
            self.reasons[name] = error.detail or error.what
            return
        try:
            limits = context.attributes
            slots = min(settings.recv_buffer_pool_size, limits.max_srq_wr or settings.recv_buffer_pool_size)
            pd = context.alloc_pd()
            cq = context.create_cq(min(settings.cq_size, limits.max_cqe))
            srq = pd.create_srq(slots, max_sge=1)
            port = self._native.add_port(
                pd._native,
                cq._native,
                srq._native,
                name=name,
                slot_bytes=settings.recv_buffer_size,
                pool_slots=slots,
                window=settings.window,
                huge_pages=settings.huge_pages,
                pin=settings.pin_memory,
            )
        except VerbenaError as error:
            context.close()
            self.reasons[name] = str(error)
            return
        self._open[name] = Wire(name, context, pd, cq, srq, port, settings)

    def close(self) -> None:
        for wire in reversed(list(self._open.values())):
            wire.context.close()
        self._open.clear()
