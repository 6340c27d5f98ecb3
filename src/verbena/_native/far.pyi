"""Far memory: the native data path."""

import verbena._native.transport

class ArrayMemory:
    """The bytes of a far.Array, through a cache."""

    def __init__(
        self,
        session: verbena._native.transport.Session,
        remote: verbena._native.transport.RemoteRegion,
        *,
        length: int,
        cache_bytes: int,
        block_bytes: int,
    ) -> None: ...
    def read(
        self, offset: int, buffer: object, *, timeout_s: float, progress: object | None, owner: object | None
    ) -> None: ...
    def write(
        self, offset: int, buffer: object, *, timeout_s: float, progress: object | None, owner: object | None
    ) -> None: ...
    def move_rows(
        self,
        is_write: bool,
        rows: object,
        length: int,
        buffer: object,
        *,
        timeout_s: float,
        progress: object | None,
        owner: object | None,
    ) -> None:
        """
        Row i of the buffer is row rows[i], an int64, of an array with `length` rows.
        """

    def prefetch(self, offset: int, length: int) -> None: ...
    @property
    def prefetch_bytes(self) -> int: ...
    def flush(self, *, timeout_s: float, progress: object | None) -> None: ...
    def invalidate(self, *, discard: bool, timeout_s: float, progress: object | None) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def close(self) -> None:
        """Ends prefetching. Flush first."""
