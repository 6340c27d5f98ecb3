"""A wire dialled directly, without a session: a queue pair connected to whoever listens there.
For peers that know nothing of sessions: rping, a verbs program, another vendor's iWARP card."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

from verbena import verbs
from verbena.errors import setup_error

# The schemes, and the wires they name.
SCHEMES = {"rdma": "ibv", "ibv": "ibv", "iwarp": "iwarp", "tcp": "iwarp", "shm": "shm", "quic": "quic"}


class DirectLink:
    """A connected queue pair with all that it needs: `qp` moves bytes, `pd` registers memory.
    Closing it, or leaving the `async with` block, disconnects and gives everything back."""

    def __init__(self, context: verbs.Context, *, owns_context: bool, depth: int) -> None:
        self.context = context
        self.pd = context.alloc_pd()
        self.cq = context.create_cq(2 * depth)
        self.qp = self.pd.create_qp(self.cq, max_send=depth, max_recv=depth)
        self.connection: verbs.Connection | None = None
        self._owns_context = owns_context

    @property
    def private_data(self) -> bytes:
        """What the peer said when it accepted."""
        return self.connection.private_data if self.connection else b""

    def close(self) -> None:
        """Closing again does nothing."""
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
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        state = self.connection.state.name if self.connection else "not connected"
        return f"<DirectLink on {self.context.attributes.name}: {state}>"


async def dial(
    url: str, *, private_data: bytes = b"", timeout_s: float = 5.0, depth: int = 128
) -> DirectLink:
    """Connects to rdma://host:port, or by iwarp:// or quic://, or to shm://name. The errors of
    Context.connect()."""
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
    """Waits for peers on one wire: `async for link in listener`. A context manager."""

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
        """Where peers dial, with the port or name that was chosen."""
        return f"{self._scheme}://{self._listener.address}"

    async def accept(self) -> DirectLink:
        """The next peer, connected."""
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
        """Also ends the links that came from it."""
        self.context.close()

    async def __aenter__(self) -> DirectListener:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _split(url: str) -> tuple[str, str]:
    scheme, separator, address = url.partition("://")
    if not separator or scheme not in SCHEMES:
        detail = f"{url!r} does not begin with one of {', '.join(f'{name}://' for name in SCHEMES)}"
        raise setup_error("unreachable", operation="dial", detail=detail)
    return SCHEMES[scheme], address
