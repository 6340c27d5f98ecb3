"""Valkey over RDMA, server and client: RESP through memory windows that each end registers for the other.
Implements the published protocol on any wire with WRITE_WITH_IMM; tested against Valkey itself."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from typing import Any

from verbena import _native, _threads, verbs
from verbena.errors import VerbenaError
from verbena.kv.client.socket_adapter import SocketAdapter
from verbena.kv.frontends.rdma_device import device_at
from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")
WINDOW_BYTES = 1 << 20
_LOOK_FOR_DEVICE_EVERY_S = 1.0
_ACCEPT_RETRY_S = 0.1
_MAX_PENDING = 64  # clients that are being accepted: each takes a window of memory
_MAX_REASON = 100  # bytes; a connection manager's private data is short
# The parameters of Valkey's own client. rnr_retry 7: retries without limit while the receiver is not ready.
_PARAMETERS: dict[str, Any] = {
    "responder_resources": 1,
    "initiator_depth": 1,
    "retry_count": 7,
    "rnr_retry": 7,
}


def wire_of(url: str) -> tuple[str, str]:
    """Returns the wire and the address of rdma://host:port. ValueError: it is not such a URL."""
    scheme, _, address = url.partition("://")
    wire = {"rdma": "ibv", "iwarp": "iwarp", "shm": "shm"}.get(scheme)
    if wire is None or not address:
        raise ValueError(f"{url!r} is not rdma://host:port, iwarp://host:port or shm://name")
    return wire, address


class _Parts:
    """A queue pair with its window, before it is connected."""

    def __init__(self, context: verbs.Context, window_bytes: int) -> None:
        self.pd = context.alloc_pd()
        receives, sends = _native.kv.VALKEY_RDMA_RECEIVES, _native.kv.VALKEY_RDMA_SENDS
        self.cq = context.create_cq(receives + 2 * sends)
        self.srq = self.pd.create_srq(receives, max_sge=1)
        self.qp = self.pd.create_qp(
            self.cq, srq=self.srq, max_send=sends, max_recv=1, max_send_sge=1, max_recv_sge=1, max_inline=0
        )
        self.link = _native.kv.ValkeyRdmaLink(
            self.pd._native, self.cq._native, self.srq._native, window_bytes
        )
        self.connection: verbs.Connection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.disconnect()
        for part in (self.qp, self.srq, self.cq, self.pd):
            part.close()


class RdmaListener:
    """Accepts Valkey's RDMA clients for a server, at an address of the wire. Runs on the running event
    loop."""

    def __init__(self, server: Server, wire: str, address: str, *, window_bytes: int = WINDOW_BYTES) -> None:
        self.context = verbs.open_device(device_at(address) if wire == "ibv" else wire)
        self.wire = wire
        self._window_bytes = window_bytes
        try:
            self._listener = self.context.listen(address)
        except BaseException:
            self.context.close()
            raise
        self._frontend = _native.kv.RdmaFrontend(server.engine)
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()
        self._device = self.context.attributes.name
        self._start(self._accept())
        server.services.rdma = self

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def clients(self) -> int:
        return self._frontend.clients

    async def close(self) -> None:
        self._server.services.rdma = None
        for task in self._tasks:
            task.cancel()
        await _threads.workers.run(self._frontend.close)
        await _threads.workers.run(self.context.close)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of Valkey-RDMA at %s failed", self.address, exc_info=error)

    async def _accept(self) -> None:
        was_reported = False
        while True:
            try:
                request = await self._listener.accept()
            except VerbenaError:
                if not self.context.removed:
                    raise
                await self._listen_again()
                continue
            except OSError as error:  # no descriptor is left
                if not was_reported:
                    log.warning("Valkey-RDMA at %s cannot accept: %s", self.address, error.strerror)
                was_reported = True
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            was_reported = False
            if len(self._tasks) > _MAX_PENDING:
                request.reject(private_data=b"too many clients connect at once")
                continue
            self._start(self._admit(request))

    async def _listen_again(self) -> None:
        """Listens at the same address when the device, which was removed, is back. Its clients were
        disconnected with it."""
        address, device = self._listener.address, f"{self.wire}:{self._device}"
        log.warning("the device %s was removed: Valkey-RDMA at %s waits for it", device, address)
        await _threads.workers.run(self.context.close)
        while True:
            await asyncio.sleep(_LOOK_FOR_DEVICE_EVERY_S)
            with contextlib.suppress(VerbenaError):
                context = await _threads.workers.run(verbs.open_device, device)
                try:
                    self._listener = await _threads.workers.run(context.listen, address)
                except BaseException:
                    context.close()
                    raise
                self.context = context
                log.warning("the device %s is back: Valkey-RDMA listens at %s", device, address)
                return

    async def _admit(self, request: verbs.ConnectRequest) -> None:
        why = await _threads.workers.run(self._frontend.rejection, request.peer)
        if why:
            return request.reject(private_data=why.encode()[:_MAX_REASON])
        try:
            parts = await _threads.workers.run(_Parts, self.context, self._window_bytes)
        except VerbenaError as error:  # such as a low limit of locked memory
            log.warning("a client at %s was rejected: %s", request.peer, error)
            return request.reject(private_data=error.code.encode())
        try:
            parts.connection = await request.accept(parts.qp, **_PARAMETERS)
        except (VerbenaError, OSError):
            await _threads.workers.run(parts.close)
            return
        await _threads.workers.run(
            self._frontend.admit, parts.link, parts.qp._native, parts.connection._native, parts
        )


class RdmaSocket(SocketAdapter):
    """A connection to a Valkey server over RDMA. `url`: rdma://host:port."""

    def __init__(self, url: str, *, timeout_s: float = 5.0) -> None:
        super().__init__()
        wire, address = wire_of(url)
        self.url = url
        self._context = verbs.open_device(device_at(address, dials=True) if wire == "ibv" else wire)
        try:
            self._parts = _Parts(self._context, WINDOW_BYTES)
            self._parts.connection = self._context.connect_blocking(
                self._parts.qp, address, timeout_s=timeout_s, **_PARAMETERS
            )
            self._stream = _native.kv.RdmaStream(
                self._parts.link, self._parts.qp._native, self._parts.connection._native
            )
        except BaseException:
            self._context.close()
            raise

    def getsockname(self) -> tuple[str, int]:
        return (self.url, 0)

    def getpeername(self) -> str:
        return self.url

    def _send(self, data: bytes, timeout_s: float) -> bytes:
        self._stream.send(data, timeout_s)
        return b""

    def _receive(self, size: int, timeout_s: float) -> bytes | None:
        return self._stream.receive(size, timeout_s)

    def _close(self) -> None:
        with contextlib.suppress(VerbenaError):
            self._parts.close()
        self._context.close()


def rdma_pool(url: str, *, library: str = "valkey", **options: Any) -> Any:
    """Returns a pool of valkey-py's (or redis-py's: `library="redis"`) to a Valkey server over RDMA:
    valkey.Valkey(connection_pool=verbena.kv.rdma_pool("rdma://192.0.2.1:6379"))."""
    base: Any = importlib.import_module(f"{library}.connection").AbstractConnection

    class RdmaConnection(base):  # type: ignore[misc]
        def __init__(self, url: str, *, socket_timeout: float | None = None, **others: Any) -> None:
            self.host, self.port, self._url = url, 0, url
            super().__init__(**others)
            self.socket_timeout = socket_timeout

        def repr_pieces(self) -> list[tuple[str, Any]]:
            return [("url", self._url), ("db", self.db)]

        def _connect(self) -> RdmaSocket:
            try:
                made = RdmaSocket(self._url)
            except VerbenaError as error:
                raise ConnectionError(str(error)) from error
            made.settimeout(self.socket_timeout)
            return made

        def _host_error(self) -> str:
            return self._url

    pool = importlib.import_module(library).ConnectionPool
    return pool(connection_class=RdmaConnection, url=url, **options)
