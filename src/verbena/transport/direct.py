"""Direct links: a queue pair connected to a listener of a wire, without a session.
For peers that do not speak the session protocol: rping, verbs programs, iWARP cards of other vendors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from verbena import _threads, verbs
from verbena.errors import setup_error

# URL scheme → wire.
SCHEMES = {"rdma": "ibv", "ibv": "ibv", "iwarp": "iwarp", "tcp": "iwarp", "shm": "shm", "quic": "quic"}


class DirectLink:
    """A connected queue pair with its resources: `qp` transfers data, `pd` registers memory.
    close(), or the end of `async with`, disconnects and closes all of them."""

    def __init__(self, context: verbs.Context, *, owns_context: bool, depth: int) -> None:
        self.context = context
        self.pd = context.alloc_pd()
        self.cq = context.create_cq(2 * depth)
        self.qp = self.pd.create_qp(self.cq, max_send=depth, max_recv=depth)
        self.connection: verbs.Connection | None = None
        self._owns_context = owns_context

    @property
    def private_data(self) -> bytes:
        """The private data of the peer's accept; empty before the connection is established."""
        return self.connection.private_data if self.connection else b""

    def close(self) -> None:
        """Disconnects and closes the queue pair and its resources. Idempotent."""
        if self.connection is not None:
            self.connection.disconnect()
        if self._owns_context:
            self.context.close()
            return
        for part in (self.qp, self.cq, self.pd):
            part.close()

    async def __aenter__(self) -> DirectLink:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _threads.workers.run(self.close)

    def __repr__(self) -> str:
        state = self.connection.state.name if self.connection else "not connected"
        return f"<DirectLink on {self.context.attributes.name}: {state}>"


async def dial(
    url: str, *, private_data: bytes = b"", timeout_s: float = 5.0, depth: int = 128
) -> DirectLink:
    """Connects to rdma://host:port, iwarp://host:port, quic://host:port or shm://name. Close the link
    afterwards. Errors as for open_device() and Context.connect()."""
    wire, address = _split(url)
    link = DirectLink(verbs.open_device(wire), owns_context=True, depth=depth)
    try:
        link.connection = await link.context.connect(
            link.qp, address, private_data=private_data, timeout_s=timeout_s
        )
    except BaseException:
        link.close()
        raise
    return link


class DirectListener:
    """Accepts peers on one wire: `async for link in listener`. An async context manager.
    Errors as for open_device() and Context.listen()."""

    def __init__(self, url: str, *, private_data: bytes = b"", depth: int = 128) -> None:
        wire, address = _split(url)
        self.context = verbs.open_device(wire)
        self._scheme = url.partition("://")[0]
        self._private_data = private_data
        self._depth = depth
        try:
            self._listener = self.context.listen(address)
        except BaseException:
            self.context.close()
            raise

    @property
    def url(self) -> str:
        """The URL that peers dial, with the actual port or name."""
        return f"{self._scheme}://{self._listener.address}"

    async def accept(self) -> DirectLink:
        """Waits for the next peer, accepts it and returns its link. ClosedError if the listener is closed."""
        request = await self._listener.accept()
        link = DirectLink(self.context, owns_context=False, depth=self._depth)
        try:
            link.connection = await request.accept(link.qp, private_data=self._private_data)
        except BaseException:
            link.close()
            raise
        return link

    async def __aiter__(self) -> AsyncIterator[DirectLink]:
        while True:
            yield await self.accept()

    def close(self) -> None:
        """Closes the listener and every link that it accepted."""
        self.context.close()

    async def __aenter__(self) -> DirectListener:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _threads.workers.run(self.close)


def _split(url: str) -> tuple[str, str]:
    scheme, separator, address = url.partition("://")
    if not separator or scheme not in SCHEMES:
        detail = f"{url!r} does not begin with one of {', '.join(f'{name}://' for name in SCHEMES)}"
        raise setup_error("unreachable", operation="dial", detail=detail)
    return SCHEMES[scheme], address
