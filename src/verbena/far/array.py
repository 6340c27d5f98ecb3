"""far.Array: a numpy-like view of a remote node's memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena.errors import VerbenaError, setup_error
from verbena.far.cache import BlockCache
from verbena.far.lazy import numpy
from verbena.far.selection import Selection, runs, select
from verbena.far.window import Window
from verbena.transport import RemoteRegion, Session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

CACHE_BYTES = 64 << 20
BLOCK_BYTES = 64 << 10
_READ_OVER = 4096  # reading this many unneeded bytes is cheaper than another transfer
_MAX_HULL_BYTES = 4 << 20  # the most bytes read at once when some of them are unneeded
_PREFETCH_CHUNK = 1 << 20
_PREFETCH_THREADS = 2


class Array:
    """An array in a peer's memory. Index the first axis with an integer, a slice, or an integer or boolean
    array; further axes are indexed locally. Reading returns a local copy; assign to write.

    Accesses go through a cache of `cache_bytes` in blocks of `block_bytes`; with 0 bytes, every access is a
    transfer. Assigned bytes reach the peer in flush(), in close(), or when their block is evicted. Caches are
    not coherent: have one user, or flush() after writing and invalidate() before reading elsewhere.
    Thread-safe. Calls block, so asyncio programs must use a thread.

    Raises the session's errors: a failover to another wire is transparent, a lost peer raises
    BrokenLinkError."""

    def __init__(
        self,
        session: Session,
        remote: RemoteRegion,
        dtype: DTypeLike,
        shape: int | Sequence[int],
        *,
        cache_bytes: int = CACHE_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.session = session
        self.remote = remote
        self.name: str | None = None  # the name of its allocation on the memory node, if it has one
        self._allocation: int | None = None
        self._dtype: np.dtype[Any] = numpy().dtype(dtype)
        self._shape = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
        if self._dtype.hasobject or not self._dtype.itemsize:
            raise _invalid(f"arrays of {self._dtype} cannot be in far memory")
        if not self._shape or min(self._shape) < 0:
            raise _invalid(f"shape {self._shape} has no first axis")
        self._row_shape = self._shape[1:]
        self._row_bytes: int = self._dtype.itemsize * _product(self._row_shape)
        if self.nbytes > remote.length:
            detail = f"{self.nbytes} bytes in a region of {remote.length}"
            raise setup_error(
                "out_of_range", operation="create a far.Array", peer=session.peer, detail=detail
            )
        self._window = Window(session, remote)
        self._cache: BlockCache | None = None
        if cache_bytes and self.nbytes:
            self._cache = BlockCache(
                self._window,
                length=self.nbytes,
                cache_bytes=cache_bytes,
                block_bytes=min(block_bytes, cache_bytes),
            )
        self._bytes: BlockCache | Window = self._cache or self._window
        self._assigning = threading.RLock()  # guards read-modify-write of partial rows
        self._fetchers: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return _product(self._shape)

    @property
    def nbytes(self) -> int:
        return self._shape[0] * self._row_bytes

    def __len__(self) -> int:
        return self._shape[0]

    # Access

    def __getitem__(self, key: Any) -> Any:
        self._check_open()
        selection = select(key, self._shape)
        piece = self._piece(selection)
        if piece is not None:
            offset, found = piece
            self._bytes.read(offset, _bytes_of(found))
            return found if Ellipsis in selection.local else found[()]
        local = self._read_rows(selection.rows)
        return local[selection.local]

    def __setitem__(self, key: Any, value: ArrayLike | Array) -> None:
        self._check_open()
        selection = select(key, self._shape)
        values = numpy().asarray(value) if isinstance(value, Array) else value
        with self._assigning:
            piece = self._piece(selection)
            if piece is not None:
                offset, changed = piece
                changed[...] = values
                self._bytes.write(offset, _bytes_of(changed))
                return
            rows = selection.rows
            local = self._new(len(rows)) if selection.takes_whole_rows else self._read_rows(rows)
            local[selection.local] = values
            self._write_rows(rows, local)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a far.Array is remote: an array without a copy is impossible")
        found: NDArray[Any] = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def prefetch(self, key: Any = slice(None)) -> None:
        """Starts to fetch rows into the cache, and returns at once. Fetches at most half of the cache, from
        the first row on; does nothing without a cache. Errors surface in the access that needs the rows."""
        self._check_open()
        cache, rows = self._cache, select(key, self._shape).rows
        if cache is None:
            return
        left = cache.prefetch_bytes
        for start, stop in runs(rows, gap=self._gap, longest=self._hull):
            offset, end = int(rows[start]) * self._row_bytes, (int(rows[stop - 1]) + 1) * self._row_bytes
            end = min(end, offset + left)
            left -= end - offset
            while offset < end:
                # Split at multiples of the piece size, so that neighbouring pieces share no block.
                piece = min(cache.prefetch_bytes, _PREFETCH_CHUNK)
                next_offset = min(end, (offset // piece + 1) * piece)
                self._start(cache, offset, next_offset - offset)
                offset = next_offset
            if left <= 0:
                return

    # Consistency

    def flush(self) -> None:
        """Writes all assigned bytes to the peer's memory; returns when they have arrived. Raises the
        session's errors."""
        self._check_open()
        if self._cache is not None:
            self._cache.flush()

    def invalidate(self, *, discard: bool = False) -> None:
        """Drops cached blocks, so that the next access sees what other users wrote. Flushes first; with
        `discard`, drops unflushed bytes instead."""
        self._check_open()
        if self._cache is not None:
            self._cache.invalidate(discard=discard)

    def stats(self) -> dict[str, int]:
        """Returns the number of transfers (short READs or WRITEs in a row count as one) and bytes on the
        wire, and the cache's hits, misses, evictions, cached and dirty bytes."""
        return {**self._window.counters(), **(self._cache.counters() if self._cache else {})}

    def close(self) -> None:
        """Flushes and closes; the peer's memory stays allocated. Idempotent. Raises the session's errors."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            with self._starting:
                fetchers, self._fetchers = self._fetchers, None
            if fetchers is not None:
                fetchers.shutdown(cancel_futures=True)

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The block's own error is more useful than a flush that fails for the same reason.
        with contextlib.suppress(VerbenaError) if error is not None else contextlib.nullcontext():
            self.close()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<far.Array{name} {self._shape} {self._dtype} at {self.session.peer}>"

    @property
    def _gap(self) -> int:
        return _READ_OVER // max(self._row_bytes, 1)

    @property
    def _hull(self) -> int:
        return _MAX_HULL_BYTES // max(self._row_bytes, 1)

    def _new(self, rows: int) -> NDArray[Any]:
        array: NDArray[Any] = numpy().empty((rows, *self._row_shape), self._dtype)
        return array

    def _piece(self, selection: Selection) -> tuple[int, NDArray[Any]] | None:
        """For a selection of contiguous bytes in one row: its offset and a new array for it; else None."""
        keys = selection.local[1:]
        if not selection.is_one_row or not all(_is_basic(key) for key in keys):
            return None
        np = numpy()
        row_offset = selection.rows[0] * self._row_bytes
        if not keys:
            return (row_offset, np.empty(self._row_shape, self._dtype)) if self._row_bytes else None
        row = np.empty(self._row_shape, self._dtype)  # never accessed: used only to compute the part's offset
        part = row[keys if Ellipsis in keys else (*keys, Ellipsis)]
        if not part.flags.c_contiguous or not part.size:
            return None
        offset = part.ctypes.data - row.ctypes.data
        return row_offset + offset, np.empty(part.shape, self._dtype)

    def _read_rows(self, rows: Any) -> NDArray[Any]:
        found = self._new(len(rows))
        if not found.nbytes:
            return found
        for start, stop in runs(rows, gap=self._gap, longest=self._hull):
            first, count = int(rows[start]), int(rows[stop - 1]) + 1 - int(rows[start])
            if count == stop - start:
                self._bytes.read(first * self._row_bytes, _bytes_of(found[start:stop]))
                continue
            hull = self._new(count)
            self._bytes.read(first * self._row_bytes, _bytes_of(hull))
            found[start:stop] = hull[numpy().asarray(rows[start:stop]) - first]
        return found

    def _write_rows(self, rows: Any, values: NDArray[Any]) -> None:
        if not values.nbytes:
            return
        for start, stop in runs(rows, gap=0, longest=1):
            self._bytes.write(int(rows[start]) * self._row_bytes, _bytes_of(values[start:stop]))

    def _start(self, cache: BlockCache, offset: int, length: int) -> None:
        def fetch() -> None:
            with contextlib.suppress(VerbenaError):
                cache.prefetch(offset, length)

        with self._starting:
            if self._closed:
                return
            if self._fetchers is None:
                self._fetchers = ThreadPoolExecutor(_PREFETCH_THREADS, thread_name_prefix="verbena-far")
            self._fetchers.submit(fetch)

    def _check_open(self) -> None:
        if self._closed:
            raise setup_error("closed", operation="use a far.Array", detail="the array was closed")


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's bytes. A view as uint8, because not every dtype supports the buffer protocol."""
    return memoryview(array.reshape(-1).view(numpy().uint8))


def _is_basic(key: Any) -> bool:
    return (isinstance(key, int) and not isinstance(key, bool)) or isinstance(key, slice) or key is Ellipsis


def _product(lengths: Sequence[int]) -> int:
    product = 1
    for length in lengths:
        product *= length
    return product


def _invalid(detail: str) -> VerbenaError:
    return setup_error("invalid_argument", operation="create a far.Array", detail=detail)
