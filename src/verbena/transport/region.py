"""Memory that a node exposes to its sessions, and the value that identifies it to peers."""

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
    """Exposed memory. Peers access it through `remote` until revoke(), which returns when no access is in
    progress. `region.memory` is its buffer. A context manager."""

    def __init__(self, node: Node, memory: Buffer, native: _native.transport.ExposedRegion) -> None:
        self.node = node
        self.memory = memory
        self._native = native

    @property
    def remote(self) -> RemoteRegion:
        """Identifies the whole region to a peer. StateError after revoke()."""
        if self.revoked:
            raise setup_error("closed", operation="remote", detail="the region was revoked")
        return RemoteRegion(self._native.addr, self._native.length, self._native.key, self.node.boot_epoch)

    @property
    def revoked(self) -> bool:
        return self._native.key == 0

    def revoke(self) -> None:
        """Revokes access. Later operations of peers fail with DeniedError; their sessions continue."""
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
