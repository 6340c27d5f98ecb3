"""Dask's comm backend for addresses such as verbena://host:port. Each comm is a session: over shared memory
on one host, RDMA where both ends have it, TCP elsewhere, with failover. `distributed` finds it through its
entry point; programs need not import Verbena."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from distributed.comm import core, registry
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.utils import ensure_ip, ensure_memoryview, get_ip

import verbena
from verbena import _threads
from verbena.errors import ConfigurationError, DeniedError, VerbenaError
from verbena.integrations import dask_frames
from verbena.integrations.dask_setup import setup_for
from verbena.transport import control

PREFIX = "verbena://"
_MESSAGE = "dask.message"
_MAX_UNREAD_BYTES = 64 << 20  # past this, the peer's writes wait for our reader
_MAX_UNANSWERED = 64  # short messages that a writer may send before it waits for replies
_FLUSH_S = 5.0

logger = logging.getLogger(__name__)


class Comm(core.Comm):
    """One Dask comm. Messages that have arrived can be read even after the peer has closed."""

    def __init__(
        self,
        session: verbena.Session,
        *,
        local: str,
        peer: str,
        deserialize: bool,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(deserialize)
        self.session = session
        self._local_addr, self._peer_addr = local, peer
        self._on_end = on_end
        self._unread: deque[tuple[list[Any], int]] = deque()
        self._unread_bytes = 0
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._unanswered: set[asyncio.Task[bytes]] = set()
        self._reason = "the comm was closed"
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.create_task(self._watch(), name=f"verbena watch {peer}")

    async def read(self, deserializers: Any = None) -> Any:
        try:
            while not self._unread:
                self._check_open()
                self._arrived.clear()
                await self._arrived.wait()
        except asyncio.CancelledError:
            self.abort()  # a late reply must not be taken for the next one
            raise
        frames, nbytes = self._unread.popleft()
        self._unread_bytes -= nbytes
        self._room.set()
        return await from_frames(
            frames,
            deserialize=self.deserialize,
            deserializers=deserializers,
            allow_offload=self.allow_offload,
        )

    async def write(self, msg: Any, serializers: Any = None, on_error: str | None = "message") -> int:
        self._check_open()
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
        )
        views = [ensure_memoryview(frame) for frame in frames]
        lent: list[verbena.Region] = []
        try:
            message = dask_frames.encode(views, lambda frame: self._lend(frame, lent))
            self._check_open()
            answer = self._loop.create_task(self.session.call(_MESSAGE, message))
            self._unanswered.add(answer)
            answer.add_done_callback(self._on_reply)
            if lent:  # the reply means that the peer has copied them
                await asyncio.shield(answer)
            elif len(self._unanswered) > _MAX_UNANSWERED:
                await asyncio.wait(self._unanswered, return_when=asyncio.FIRST_COMPLETED)
        except VerbenaError as error:
            self._end(str(error))
            raise core.CommClosedError(self._reason) from error
        except BaseException:
            self.abort()
            raise
        finally:
            for region in lent:
                region.close()
        return sum(view.nbytes for view in views)

    async def close(self) -> None:
        if self._unanswered and not self._closed:
            await asyncio.wait(self._unanswered, timeout=_FLUSH_S)
        self._end("the comm was closed")
        await self.session.close()

    def abort(self) -> None:
        self._end("the comm was aborted")
        if not self.session.closed:
            control.submit(self.session._close())

    def closed(self) -> bool:
        return self._closed

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def same_host(self) -> bool:
        return self.session.wire == "shm" or super().same_host

    @property
    def extra_info(self) -> dict[str, Any]:
        return {"wire": self.session.wire, "reason": self.session.reason}

    def on_message(self, request: verbena.Request) -> Awaitable[None] | None:
        """The session's handler. The reply means that the frames have been copied and that there is room for
        more."""
        frames = dask_frames.decode(request.payload)
        if any(frame.regions for frame in frames):
            return self._pull(frames)
        self._take([frame.data for frame in frames], len(request.payload))
        return None if self._unread_bytes < _MAX_UNREAD_BYTES else self._wait_for_room()

    async def _pull(self, frames: list[dask_frames.Frame]) -> None:
        await self._wait_for_room()
        here = [_memory(frame.length) if frame.regions else frame.data for frame in frames]

        def get_all() -> None:
            for frame, memory in zip(frames, here, strict=True):
                offset = 0
                for region in frame.regions:
                    self.session.sync.read_into(region, memory[offset : offset + len(region)])  # type: ignore[index]
                    offset += len(region)

        await _threads.transfers.run(get_all)
        self._take(here, sum(frame.length for frame in frames))

    async def _wait_for_room(self) -> None:
        while self._unread_bytes >= _MAX_UNREAD_BYTES and not self._closed:
            self._room.clear()
            await self._room.wait()

    def _take(self, frames: list[Any], nbytes: int) -> None:
        self._unread.append((frames, nbytes))
        self._unread_bytes += nbytes
        self._arrived.set()

    def _lend(self, frame: memoryview, lent: list[verbena.Region]) -> list[verbena.RemoteRegion]:
        node = self.session.node
        most = node.settings.max_mr_size
        regions = [
            node.expose(frame[start : start + most], session=self.session)
            for start in range(0, frame.nbytes, most)
        ]
        lent += regions
        return [region.remote for region in regions]

    def _on_reply(self, answer: asyncio.Task[bytes]) -> None:
        self._unanswered.discard(answer)
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self._end(str(error))

    async def _watch(self) -> None:
        async for _ in self.session.states():
            pass
        self._end(f"the session ended: {self.session.reason}")
        await self.session.close()  # a session that has failed uses its node until then

    def _end(self, reason: str) -> None:
        if self._closed:
            return
        self._closed, self._reason = True, reason
        self._arrived.set()
        self._room.set()
        if self._on_end is not None:
            self._on_end()

    def _check_open(self) -> None:
        if self._closed:
            raise core.CommClosedError(f"{self._peer_addr}: {self._reason}")


class Connector(core.Connector):
    """Opens comms; those of one event loop and set of wires share a node."""

    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> Comm:
        host, port = parse_host_port(address)
        setup = setup_for(connection_args)
        comm: Comm | None = None

        def get_comm(session: verbena.Session) -> Comm:
            """Returns the comm, created on first use: a message may arrive before connect() returns."""
            nonlocal comm
            if comm is None:
                local = PREFIX + unparse_host_port(get_ip(ensure_ip(host)), 0)
                comm = Comm(
                    session,
                    local=local,
                    peer=PREFIX + address,
                    deserialize=deserialize,
                )
            return comm

        try:
            session = await verbena.connect(
                unparse_host_port(host, port),
                handlers={_MESSAGE: lambda request: get_comm(request.session).on_message(request)},
                tls=setup.client_tls,
                config=setup.settings,
            )
        except (ConfigurationError, DeniedError) as error:  # retrying would not help
            raise core.FatalCommClosedError(str(error)) from error
        except VerbenaError as error:
            raise core.CommClosedError(str(error)) from error
        return get_comm(session)


class Listener(core.BaseListener):
    """Accepts comms. `stop()` only ends accepting; open comms continue, as Dask expects."""

    prefix = PREFIX  # workers read this attribute

    def __init__(
        self,
        address: str,
        handle_comm: Callable[[Comm], Awaitable[None]],
        *,
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self._host, self._port = parse_host_port(address, default_port)
        self._default_host = default_host
        self._handle_comm = handle_comm
        self._deserialize, self._allow_offload = deserialize, allow_offload
        self._setup = setup_for(connection_args)
        self._listener: verbena.Listener | None = None
        self._stopped: verbena.Listener | None = None  # stays open until its comms have ended
        self._comms: dict[int, Comm] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        try:
            self._listener = await verbena.listen(
                unparse_host_port(self._host or "0.0.0.0", self._port),
                handlers={_MESSAGE: lambda request: self._comm(request.session).on_message(request)},
                on_session=self._comm,
                tls=self._setup.server_tls,
                config=self._setup.settings,
            )
        except VerbenaError as error:
            raise OSError(error.errno or 0, str(error)) from error
        self._port = parse_host_port(self._listener.address)[1]

    def stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._stopped = listener
            listener.stop_accepting()
            self._close_when_idle()

    @property
    def listen_address(self) -> str:
        return PREFIX + unparse_host_port(self._host or "0.0.0.0", self._port)

    @property
    def contact_address(self) -> str:
        host = ensure_concrete_host(self._host or "0.0.0.0", default_host=self._default_host)
        return PREFIX + unparse_host_port(host, self._port)

    def _comm(self, session: verbena.Session) -> Comm:
        """Returns the session's comm, created on first use: its first message may arrive before
        `on_session`."""
        comm = self._comms.get(session.id)
        if comm is None:
            comm = self._comms[session.id] = Comm(
                session,
                local=self.contact_address,
                peer=PREFIX + session.peer,
                deserialize=self._deserialize,
                on_end=lambda: self._forget(session.id),
            )
            comm.allow_offload = self._allow_offload
            if self._listener is None:
                comm.abort()  # the session arrived during stop()
            else:
                task = asyncio.get_running_loop().create_task(self._serve(comm))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return comm

    async def _serve(self, comm: Comm) -> None:
        try:
            await self.on_connection(comm)
        except core.CommClosedError:
            logger.info("%s disconnected during the handshake", comm.peer_address)
            return
        await self._handle_comm(comm)

    def _forget(self, session_id: int) -> None:
        self._comms.pop(session_id, None)
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._stopped is not None and not self._comms:
            listener, self._stopped = self._stopped, None
            control.submit(listener._close())


class Backend(registry.Backend):
    """The class that the entry point names."""

    def get_connector(self) -> Connector:
        return Connector()

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[[Comm], Awaitable[None]],
        deserialize: bool,
        **connection_args: Any,
    ) -> Listener:
        return Listener(loc, handle_comm, deserialize=deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        return str(parse_host_port(loc)[0])

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, port = parse_host_port(loc)
        return str(host), int(port)

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        return str(unparse_host_port(get_ip(ensure_ip(host)), None))


def _memory(nbytes: int) -> memoryview:
    """Allocates memory for a frame; with numpy if it is installed, which does not zero it."""
    try:
        import numpy
    except ImportError:
        return memoryview(bytearray(nbytes))
    return numpy.empty(nbytes, dtype="u1").data
