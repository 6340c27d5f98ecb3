"""Memory that a node exposes to its sessions, and the value by which a peer names it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import setup_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node

RemoteRegion = _native.transport.RemoteRegion


class Region:
    """Exposed memory. Peers reach it by `remote` until revoke(), which returns when nobody is in it any more.
    memoryview(region.memory) are its bytes. A context manager."""

    def __init__(self, node: Node, memory: Buffer, native: _native.transport.Exposed) -> None:
        self.node = node
        self.memory = memory
        self._native = native

    @property
    def remote(self) -> RemoteRegion:
        """What a peer needs to reach all of it. StateError once it is revoked."""
        if self.revoked:
            raise setup_error("closed", operation="remote", detail="the region was revoked")
        return RemoteRegion(self._native.addr, self._native.length, self._native.key, self.node.boot_epoch)

    @property
    def revoked(self) -> bool:
        return self._native.key == 0

    def revoke(self) -> None:
        """Ends the peers' use of it. A session that tries later is refused; the session itself goes on."""
        self._native.revoke()

    def __len__(self) -> int:
        return self._native.length

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.revoke()

    def __repr__(self) -> str:
        return f"<Region {'revoked' if self.revoked else f'{len(self)} bytes'}>"
