"""The wires of a node: opened once, each with the queues and buffers that its sessions share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from verbena import _native, verbs
from verbena.errors import VerbenaError, setup_error
from verbena.transport.memory.placement import place
from verbena.transport.observe import log
from verbena.transport.queues import CompletionQueues
from verbena.transport.settings import Settings


@dataclass(frozen=True)
class Wire:
    """An open wire with its protection domain, queues and buffer pools."""

    name: str
    context: verbs.Context
    pd: verbs.ProtectionDomain
    queues: CompletionQueues
    srq: verbs.SharedReceiveQueue
    port: _native.transport.Port
    settings: Settings
    keeps_registrations: bool
    memory_node: int  # NUMA node of the buffers; -1: any
    memory_note: str  # why it is -1

    def create_qp(self) -> verbs.QueuePair:
        """Creates a queue pair for a link, within the limits of the device. Close it with close_qp()."""
        device = self.context.attributes
        settings = self.settings
        return self.queues.create_qp(
            lambda cq: self.pd.create_qp(
                cq,
                srq=self.srq,
                max_send=min(settings.send_queue_depth, device.max_qp_wr),
                max_recv=1,
                max_send_sge=min(settings.max_send_sge, device.max_sge),
                max_recv_sge=min(settings.max_recv_sge, device.max_sge),
                max_inline=min(settings.inline_threshold, device.max_inline),
            )
        )

    def close_qp(self, qp: verbs.QueuePair) -> None:
        qp.close()
        self.queues.forget(qp)


class Wires:
    """Opens every wire of the settings. A wire that cannot be opened is left out, with its reason in
    `reasons`; so is a wire whose device was removed, until restore(). close() closes them all."""

    def __init__(self, native: _native.transport.Node, settings: Settings) -> None:
        self._native = native
        self._settings = settings
        self._open: dict[str, Wire] = {}
        self._keeping: frozenset[str] = frozenset()
        self._removed: dict[str, str] = {}  # wire → its former device
        self.reasons: dict[str, str] = {}
        self.ibv = settings.ibv  # the options with which the device was opened
        for name in settings.wires:
            self._try_open(name)
        self._keeping = frozenset(wire.name for wire in self if wire.keeps_registrations)

    @property
    def names(self) -> tuple[str, ...]:
        """The open wires, best first."""
        return tuple(self._open)

    @property
    def removed(self) -> tuple[str, ...]:
        """The wires whose device was removed and has not returned."""
        return tuple(self._removed)

    def __getitem__(self, name: str) -> Wire:
        try:
            return self._open[name]
        except KeyError:
            raise setup_error("no_device", operation="dial", detail=self.reasons.get(name, "")) from None

    @property
    def keeping(self) -> frozenset[str]:
        """The wires that cache registrations of the program's buffers."""
        return self._keeping

    def __iter__(self) -> Iterator[Wire]:
        return iter(self._open.values())

    def remove(self, wire: Wire) -> None:
        """Closes a wire whose device was removed. Its links must have been dropped."""
        device = wire.context.attributes.name
        self._removed[wire.name] = device
        self.reasons[wire.name] = _gone(device)
        self._open = {name: other for name, other in self._open.items() if other is not wire}
        log.event("wire_removed", wire=wire.name, device=device)
        self._native.retire_port(wire.port)
        wire.context.close()

    def restore(self, name: str) -> bool:
        """Opens a removed wire again. False if its device has not returned."""
        device = self._removed[name]
        self._try_open(name)
        if name not in self._open:
            self.reasons[name] = _gone(device)
            return False
        del self._removed[name], self.reasons[name]
        self._open = {wire: self._open[wire] for wire in self._settings.wires if wire in self._open}
        log.event("wire_returned", wire=name, device=device)
        return True

    def _try_open(self, name: str) -> None:
        settings = self._settings
        chosen = {"iwarp": settings.iwarp, "ibv": settings.ibv, "quic": settings.quic}.get(name)
        try:
            context = self._open_device(name, chosen)
            context._close_own_port()  # sessions make every connection by connect() and listen()
        except VerbenaError as error:
            self.reasons[name] = (error.detail or error.what).removeprefix(f"{name}: ")
            if chosen is not None and name not in self._removed:
                remedy = f"{settings.gid_key} = -1" if error.code == "no_gid" else ""
                log.event("wire_absent", wire=name, reason=self.reasons[name], set=remedy)
            return
        try:
            limits = context.attributes
            slots = min(settings.recv_buffer_pool_size, limits.max_srq_wr or settings.recv_buffer_pool_size)
            memory_node, memory_note = place(context, settings.numa)
            pd = context.alloc_pd()
            cq = context.create_cq(min(settings.cq_size, limits.max_cqe))
            srq = pd.create_srq(slots, max_sge=min(settings.max_recv_sge, limits.max_sge))
            port = self._native.add_port(
                pd._native,
                cq._native,
                srq._native,
                name=name,
                buffer_bytes=settings.recv_buffer_size,
                pool_buffers=slots,
                window=settings.window,
                huge_pages=settings.huge_pages,
                pin=settings.pin_memory,
            )
        except VerbenaError as error:
            context.close()
            self.reasons[name] = str(error)
            return

        def add_queue() -> verbs.CompletionQueue:
            another = context.create_cq(cq.capacity)
            port.add_queue(another._native)
            return another

        # Acknowledgements and pings are outside the window.
        link_size = settings.send_queue_depth + settings.window + _native.transport.SPARE_RECEIVES
        queues = CompletionQueues(cq, add_queue, link_size=link_size)
        keeps = settings.keep_registrations
        if keeps is None:
            keeps = limits.capabilities.get("registration") == "locks memory"
        self._open[name] = Wire(
            name, context, pd, queues, srq, port, settings, keeps, memory_node, memory_note
        )

    def _open_device(
        self, name: str, options: verbs.IbvOptions | verbs.IwarpOptions | verbs.QuicOptions | None
    ) -> verbs.Context:
        settings = self._settings
        device = self._removed.get(name) or settings.devices.get(name, "")
        if not device and name == "ibv":
            device = _active_device()
        place = f"{name}:{device}" if device else name
        if options is None:
            return settings.open_device(place)
        try:
            return settings.open_device(place, options=options)
        except VerbenaError as error:
            if error.code != "no_gid" or not settings.gid_is_default:
                raise
            assert isinstance(options, verbs.IbvOptions)
            self.ibv = replace(options, gid_index=None)
            context = settings.open_device(place, options=self.ibv)
            log.event("gid_chosen", wire=name, reason=error.detail, set=f"{settings.gid_key} = -1")
            return context

    def close(self) -> None:
        for wire in reversed(list(self._open.values())):
            wire.context.close()
        self._open.clear()


def _gone(device: str) -> str:
    return f"the device {device} was removed"


def _active_device() -> str:
    """Returns the first RDMA device with an ACTIVE port. Empty if there is none: open_device() then reports
    the reason."""
    for info in verbs.providers():
        if info.name == "ibv":
            for device in info.devices:
                if any(port.state is verbs.PortState.ACTIVE for port in device.attributes.ports):
                    return device.name
    return ""
