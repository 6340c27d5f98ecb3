"""Memory that a node exposes to its sessions, and the value by which a peer names it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import setup_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node

_LAYOUT = struct.Struct("<QQQQQ")


@dataclass(frozen=True)
class RemoteRegion:
    """A peer's memory, or a part of it: a value to be passed around. [a:b] is a part that must lie inside.
    `key` is unguessable and dies with the region; `epoch` is the run of the program that exposed it."""

    addr: int
    length: int
    key: int
    epoch: int
    offset: int = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> RemoteRegion:
        start = 0 if part.start is None else part.start
        stop = self.length if part.stop is None else part.stop
        start += self.length if start < 0 else 0
        stop += self.length if stop < 0 else 0
        if part.step not in (None, 1) or not 0 <= start <= stop <= self.length:
            detail = f"[{part.start}:{part.stop}] of {self.length} bytes"
            raise setup_error("out_of_range", operation="slice", detail=detail)
        return RemoteRegion(self.addr + start, stop - start, self.key, self.epoch, self.offset + start)

    def to_bytes(self) -> bytes:
        """40 bytes to give to the peer by any means."""
        return _LAYOUT.pack(self.addr, self.length, self.key, self.epoch, self.offset)

    @classmethod
    def from_bytes(cls, data: bytes) -> RemoteRegion:
        """The value that to_bytes() described; else ValueError."""
        if len(data) != _LAYOUT.size:
            raise ValueError(f"a RemoteRegion is {_LAYOUT.size} bytes, not {len(data)}")
        return cls(*_LAYOUT.unpack(data))


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
