"""Memory that a wire may use: registered, with keys."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.verbs.access import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.verbs.protection_domain import ProtectionDomain


class MemoryRegion(_native.MemoryRegion):
    """Made by pd.register() and pd.allocate(). [a:b] is a part of it, `remote` describes it to a peer.
    Its bytes are a buffer, memoryview(mr); views stay valid after close(), which ends the wire's use.
    Dropping the last reference closes it too."""

    __slots__ = ("__weakref__", "pd")

    def __init__(
        self,
        pd: ProtectionDomain,
        buffer: Buffer | None,
        length: int,
        access: Access,
        pin: bool,
        huge_pages: bool,
    ) -> None:
        super().__init__(pd._native, buffer, length, access, pin, huge_pages)
        self.pd = pd

    @property
    def access(self) -> Access:
        return Access(self.access_flags)

    def __enter__(self) -> MemoryRegion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MemoryRegion {'closed' if self.closed else hex(self.addr)}, {self.length} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("a MemoryRegion belongs to its process; exchange its `remote`")
