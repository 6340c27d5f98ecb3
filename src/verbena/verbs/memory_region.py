"""Memory regions: registered memory that a wire can access."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.verbs.access import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.verbs.protection_domain import ProtectionDomain


class MemoryRegion(_native.MemoryRegion):
    """Created by pd.register() and pd.allocate(). mr[a:b] is a slice of it, `remote` describes it to a peer,
    memoryview(mr) is its memory. close(), or dropping the last reference, ends the access of the wire; views
    of the memory stay valid."""

    __slots__ = ("__weakref__", "pd")

    def __init__(
        self,
        pd: ProtectionDomain,
        buffer: Buffer | None,
        length: int,
        access: Access,
        pin: bool,
        huge_pages: bool,
        *,
        peer_access: Access | None = None,
        group: _native.MemoryGroup | None = None,
    ) -> None:
        super().__init__(
            pd._native,
            buffer,
            length,
            access,
            pin,
            huge_pages,
            peer_access=None if peer_access is None else int(peer_access),
            group=group,
        )
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
