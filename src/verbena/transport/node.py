"""A node: the local end of sessions, with the wires and the exposed memory that they share."""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from verbena import _native, _threads
from verbena._closing import Closing
from verbena.errors import VerbenaError, setup_error
from verbena.transport import control, lifetime
from verbena.transport.failover.drill import DrillResult, drill
from verbena.transport.failover.peer_exit import own_process
from verbena.transport.handshake.agreement import Authentication, NodeInfo
from verbena.transport.handshake.frames import is_name
from verbena.transport.loop_events import LoopEvents
from verbena.transport.memory.region import Region
from verbena.transport.observe.capture import CaptureFile, file_in
from verbena.transport.observe.health import Check
from verbena.transport.observe.metrics.counters import Snapshot
from verbena.transport.observe.metrics.endpoint import MetricSource, MetricsServer
from verbena.transport.observe.metrics.node_totals import NodeTotals, info_rdma
from verbena.transport.observe.metrics.page import MakePanel
from verbena.transport.outcomes import EventKind
from verbena.transport.session import Session
from verbena.transport.settings import Settings
from verbena.transport.wires import Wires
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.listening.listener import Listener

_SWEEP_EVERY_S = 1.0
_LOOK_FOR_DEVICES_EVERY_S = 1.0


@functools.cache
def boot_epoch() -> int:
    """Returns a random number that identifies this process; a forked child gets its own."""
    return secrets.randbits(63) | 1


os.register_at_fork(after_in_child=boot_epoch.cache_clear)


def host_id() -> str:
    """Returns a text that is equal for processes of one kernel and network namespace, which can use shm.
    Empty if the kernel does not report it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


class Node(Closing):
    """A context manager; close() closes its sessions. `by_loop`: the first event loop that uses it polls it,
    which suits Python handlers; otherwise a native thread does. UnavailableError if no wire can be opened."""

    def __init__(self, settings: Settings | None = None, *, by_loop: bool = False) -> None:
        self.settings = settings or Settings()
        self.boot_epoch = boot_epoch()
        self.name = self.settings.node_name or _default_name()
        self._sessions: dict[int, Session] = {}
        self._totals = NodeTotals()
        self._metrics_servers: list[MetricsServer] = []
        self.panels: dict[str, MakePanel] = {}  # by title: panels that the program adds to the page
        # Returns why a peer may not query and break sessions of this node; "": it may.
        self.refuses_administration: Callable[[Session], str] = _refuses_unproved
        self.health_checks: dict[str, Check] = {}  # by name: checks that /healthz runs on the control thread
        # By name: metrics that the program adds to /metrics. They are read on the control thread.
        self.metric_sources: dict[str, MetricSource] = {}
        self._capture: CaptureFile | None = None
        self._loops: dict[asyncio.AbstractEventLoop, LoopEvents] = {}
        self._loops_lock = threading.Lock()
        self._by_loop = by_loop
        self._resting: dict[str, float] = {}
        self._opening: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by address
        self._closed = False
        self._closing = lifetime.CloseOnce()
        self._listeners: set[Listener] = set()
        self._everybody = _native.transport.Audience(of_everybody=True)
        self._native = _native.transport.Node(
            busy_poll_us=self.settings.busy_poll_us,
            sleeps=self.settings.adaptive_polling,
            poll_batch=self.settings.poll_batch,
            loop_driven=by_loop,
            heartbeat_s=self.settings.heartbeat_interval_ms / 1000,
            silence_s=self.settings.peer_timeout_ms / 1000,
            max_region_bytes=self.settings.max_mr_size,
        )
        self._control_queue = _native.transport.EventQueue()
        self.wires = Wires(self._native, self.settings)
        self._control = control.control_loop()
        lifetime.opened(self)
        self._control.call_soon_threadsafe(
            self._control.add_reader, self._control_queue.fileno(), self._on_control
        )
        self._on_session_end: list[Callable[[int], None]] = []  # called with the session's id
        self._on_restored: list[Callable[[str], None]] = []  # called with a wire whose device is back
        if "ibv" in self.wires.names:
            self._control.call_soon_threadsafe(control.spawn, self._watch_devices())
        if self.wires.keeping:
            self._control.call_soon_threadsafe(self._sweep)
        if not self.wires.names:
            self.close()
            reasons = "; ".join(f"{wire}: {reason}" for wire, reason in self.wires.reasons.items())
            raise setup_error("no_common_wire", operation="open wires", detail=reasons)
        if self.settings.capture_folder:
            try:
                self.capture(
                    file_in(self.settings.capture_folder, self.name),
                    headers_only=self.settings.capture_headers_only,
                )
            except VerbenaError:
                self.close()
                raise

    @property
    def info(self) -> NodeInfo:
        return NodeInfo(self.name, self.boot_epoch, host_id(), own_process())

    @property
    def authentication(self) -> Authentication:
        return Authentication.by(self.settings.secret)

    @property
    def sessions(self) -> list[Session]:
        """The open sessions."""
        return list(self._sessions.values())

    def expose(
        self,
        buffer: Buffer,
        *,
        access: Access = Access.REMOTE_READ,
        session: Session | None = None,
    ) -> Region:
        """Exposes a buffer to all peers, or to one session only. The region keeps the buffer until it is
        closed. BufferError if it is read-only and `access` writes. Over shm, allocate() is faster."""
        self._check_process("expose")
        return self._expose(buffer, access, self._audience_of(session))

    def _audience_of(self, session: Session | None) -> _native.transport.Audience:
        return self._everybody if session is None else session._native.audience

    def _expose(self, buffer: Buffer, access: Access, audience: _native.transport.Audience) -> Region:
        return Region(self, buffer, access=access, audience=audience)

    def allocate(self, nbytes: int, *, access: Access = Access.ALL, session: Session | None = None) -> Region:
        """Exposes new zeroed memory, allocated by the best wire. Close the region to free it."""
        self._check_process("allocate")
        return self._allocate(nbytes, access, self._audience_of(session))

    def _allocate(self, nbytes: int, access: Access, audience: _native.transport.Audience) -> Region:
        wire = next(iter(self.wires))
        memory = wire.pd._allocate_for(
            audience.group,
            nbytes,
            peer_access=access,
            huge_pages=self.settings.huge_pages,
            pin=self.settings.pin_memory,
        )
        return self._expose(memoryview(memory), access, audience)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        """Returns the current counters by wire, session and peer, and resets nothing. From any thread."""
        self._check_process("snapshot")
        return self._totals.snapshot(self)

    def info_rdma(self) -> dict[str, int]:
        """Returns the fields of `INFO rdma`: established links, and totals since the node was created."""
        self._check_process("info_rdma")
        return info_rdma(self)

    def serve_metrics(self, address: str) -> MetricsServer:
        """Serves a status page at http://`address`/, /metrics for Prometheus and /healthz until the node
        closes. Port 0: a free one, see the server's `address`. AddressError if it cannot listen there."""
        self._check_process("serve_metrics")
        return control.run_blocking(self._serve_metrics(address))

    async def drill(
        self, wire: str | None = None, *, rest_s: float = 0.0, wait_s: float | None = None
    ) -> list[DrillResult]:
        """Breaks the links of all sessions on `wire` (None: on any) to test failover; for `rest_s` this node
        does not use the wire. Returns one result per session when all are back, or after `wait_s`."""
        self._check_process("drill")
        return await drill(self, self.sessions, wire=wire, rest_s=rest_s, wait_s=wait_s)

    def capture(self, path: str | os.PathLike[str], *, headers_only: bool = False) -> CaptureFile:
        """Writes messages and own one-sided operations to a pcapng file until the capture or the node closes.
        The file contains payloads, so only its owner may read it. invalid_argument if a capture is running
        or the file cannot be created."""
        self._check_process("capture")
        if self._capture is not None and not self._capture.closed:
            detail = f"messages are being captured to {self._capture.path} already"
            raise setup_error("invalid_argument", operation="capture", detail=detail)
        self._capture = CaptureFile(self, path, headers_only=headers_only)
        return self._capture

    def close(self) -> None:
        """Closes the sessions, the listeners, the metrics servers, the capture and the wires. Idempotent."""
        if self._inherited:
            return
        self._closed = True
        lifetime.close_blocking(self._close)

    async def _serve_metrics(self, address: str) -> MetricsServer:
        server = MetricsServer(self)
        await server._open(address)
        self._metrics_servers.append(server)
        return server

    async def _close(self) -> None:
        """Closes the node; a second caller waits for the first."""
        self._closed = True
        await self._closing.run(self._close_once)

    async def _close_once(self) -> None:
        for server in self._metrics_servers:
            server._close()
        await lifetime.close_all([listener._close() for listener in self._listeners])
        await lifetime.close_all([session._close() for session in self._sessions.values()])
        self._control.remove_reader(self._control_queue.fileno())
        if self._capture is not None:
            await _threads.workers.run(self._capture.close)
        await _threads.workers.run(self._native.close)
        with self._loops_lock:
            for events in self._loops.values():
                events.close()
            self._loops.clear()
        await _threads.workers.run(self.wires.close)
        lifetime.closed(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"wires {', '.join(self.wires.names)}"
        return f"<Node {self.name}: {state}, {len(self._sessions)} sessions>"

    # Internal

    def _events(self) -> LoopEvents:
        """Returns the LoopEvents of the running loop; creates them at first use."""
        loop = asyncio.get_running_loop()
        events = self._loops.get(loop)
        if events is None:
            self._check_process("use a node")
            with self._loops_lock:
                self._loops = {other: its for other, its in self._loops.items() if not other.is_closed()}
                drives = self._by_loop and not self._loops
                events = self._loops[loop] = LoopEvents(self, loop, drives=drives)
        return events

    def _on_request(self, session_id: int, call: int, method: int, payload: bytes | None) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session._on_request(call, method, payload)

    def _on_control(self) -> None:
        for kind, session_id, call, _, _, status, _, payload in self._control_queue.take():
            session = self._sessions.get(session_id)
            if session is None:
                continue
            if kind == EventKind.LINK_LOST:
                why = payload.decode("utf-8", "replace")
                control.spawn(session._on_link_lost(call, status, why))
            elif kind == EventKind.PEER_CLOSED:
                control.spawn(session._close(notify_peer=False))

    def _sweep(self) -> None:
        """Releases cached registrations of buffers that the program no longer references; repeats."""
        if not self._closed:
            self._native.sweep_registrations()
            self._control.call_later(_SWEEP_EVERY_S, self._sweep)

    async def _watch_devices(self) -> None:
        """Closes a wire whose device was removed, since the device can return only then, and opens it again
        when the device is back."""
        while not self._closed:
            for wire in [wire for wire in self.wires if wire.context.removed]:
                for session in self.sessions:
                    if session._link is not None and session._link.wire is wire:
                        await session._on_link_lost(session._native.links, 0, "its device was removed")
                await _threads.workers.run(self.wires.remove, wire)
            for name in self.wires.removed:
                if await _threads.workers.run(self.wires.restore, name):
                    for restored in self._on_restored:
                        restored(name)
            await asyncio.sleep(_LOOK_FOR_DEVICES_EVERY_S)

    def _rest_wire(self, name: str, rest_s: float) -> None:
        self._resting[name] = time.monotonic() + rest_s

    def _is_resting(self, name: str) -> bool:
        return self._resting.get(name, 0.0) > time.monotonic()


def _refuses_unproved(session: Session) -> str:
    if session.principal.is_proved:
        return ""
    return "unproved peer: it needs the secret, a certificate or an allowed uid"


def _default_name() -> str:
    name = f"{socket.gethostname()}:{os.getpid()}"
    return name if is_name(name) else f"node:{os.getpid()}"
