"""Memory that a node exposes to its sessions, and the value that identifies it to peers."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena._forks import OfProcess, process
from verbena.errors import setup_error
from verbena.transport.memory.buffers import contiguous_bytes
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node

RemoteRegion = _native.transport.RemoteRegion


class Region(_native.transport.ExposedRegion):
    """Exposed memory. Peers access it through `remote` until close(), which returns when no access is in
    progress. It is a buffer of bytes, as a bytearray is: memoryview(region), numpy.frombuffer(region, "f4")
    and bytes(region) read it, region[a:b] is a view, region[a:b] = data writes. Views stay valid after
    close(). A context manager."""

    __slots__ = ("__weakref__", "_made_in", "node")

    def __init__(
        self, node: Node, buffer: Buffer, *, access: Access, audience: _native.transport.Audience
    ) -> None:
        super().__init__(node._native, buffer, access=int(access), audience=audience)
        self.node = node
        self._made_in = process.forks  # a native class cannot have OfProcess as its second base

    if TYPE_CHECKING:

        def __buffer__(self, flags: int, /) -> memoryview: ...

    @property
    def remote(self) -> RemoteRegion:
        """Identifies the whole region to a peer. StateError after close()."""
        OfProcess._check_process(self, "remote")  # type: ignore[arg-type]
        if self.closed:
            raise setup_error("closed", operation="remote", detail="the region was closed")
        return RemoteRegion(self.addr, self.length, self.key, self.node.boot_epoch)

    @property
    def closed(self) -> bool:
        return self._made_in != process.forks or self.key == 0

    def close(self) -> None:
        """Ends the access of peers: their later operations fail with DeniedError, and their sessions
        continue. Idempotent."""
        self.revoke()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: Any) -> Any:
        return memoryview(self)[part]

    def __setitem__(self, part: Any, value: Any) -> None:
        is_one = not isinstance(part, slice)
        memoryview(self)[part] = value if is_one else contiguous_bytes(value, "assign", argument="the value")

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Region {'closed' if self.closed else f'{len(self)} bytes'}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Region belongs to its process; exchange its `remote`")
