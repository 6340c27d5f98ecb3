"""far.Array: a numpy-like view of a remote node's memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena._closing import Closing
from verbena.errors import VerbenaError, setup_error
from verbena.far.lazy import numpy
from verbena.far.selection import Selection, runs, select
from verbena.transport import RemoteRegion, Session
from verbena.transport.requests import FOREVER, Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from verbena.transport.blocking.session import Session as BlockingSession

CACHE_BYTES = 64 << 20
BLOCK_BYTES = 64 << 10


class Array(Closing):
    """An array in a peer's memory. Index the first axis with an integer, a slice, or an integer or boolean
    array; further axes are indexed locally. Reading returns a local copy; assign to write. take() and put()
    are the same for rows, without copies of their own.

    Accesses go through a cache of `cache_bytes` in blocks of `block_bytes`; with 0 bytes, every access is a
    transfer. Assigned bytes reach the peer in flush(), in close(), or when their block is evicted. Caches are
    not coherent: have one user, or flush() after writing and invalidate() before reading elsewhere.
    Thread-safe. Calls block; far.aio has the asyncio form.

    Raises the session's errors: a failover to another wire is transparent, a lost peer raises
    BrokenLinkError, an access that takes longer than `timeout_s` raises TimedOutError."""

    def __init__(
        self,
        session: Session | BlockingSession,
        remote: RemoteRegion,
        dtype: DTypeLike,
        shape: int | Sequence[int],
        *,
        cache_bytes: int = CACHE_BYTES,
        block_bytes: int = BLOCK_BYTES,
        timeout_s: float | None = None,
    ) -> None:
        self.session = session
        self.timeout_s = timeout_s
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
        if cache_bytes and block_bytes < 1:
            raise _invalid(f"block_bytes is {block_bytes}: it must be 1 or more")
        cache_bytes = cache_bytes if self.nbytes else 0
        self._sync = session.sync
        self._memory = _native.far.ArrayMemory(
            self._sync._native,
            remote,
            length=self.nbytes,
            cache_bytes=cache_bytes,
            block_bytes=min(block_bytes, cache_bytes),
        )
        self._has_cache = cache_bytes > 0
        self._assigning = threading.RLock()  # guards read-modify-write of partial rows
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
        return self._get(key)

    def __setitem__(self, key: Any, value: ArrayLike | Array) -> None:
        self._set(key, value)

    def take(self, rows: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Returns these rows, in any order and repeated: an array of the shape of `rows`, then of a row.
        `out`, a contiguous array of that shape and of this dtype, is filled instead of a new one. IndexError
        if there is no such row."""
        return self._take(rows, out)

    def put(self, rows: ArrayLike, values: ArrayLike) -> None:
        """Assigns values, which are broadcast, to these rows. Where a row is repeated, the last value
        stays. IndexError if there is no such row."""
        self._put(rows, values)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a far.Array is remote: an array without a copy is impossible")
        found: NDArray[Any] = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def prefetch(self, key: Any = slice(None)) -> None:
        """Starts to fetch rows into the cache, and returns at once. Fetches at most half of the cache, from
        the first row on; does nothing without a cache. Errors surface in the access that needs the rows."""
        self._check_open()
        if not self._has_cache or not self._row_bytes:
            return
        rows, left = select(key, self._shape).unique(len(self)).rows, self._memory.prefetch_bytes
        for start, stop in runs(rows):
            offset, end = int(rows[start]) * self._row_bytes, (int(rows[stop - 1]) + 1) * self._row_bytes
            length = min(end - offset, left)
            left -= length
            self._memory.prefetch(offset, length)
            if left <= 0:
                return

    # Consistency

    def flush(self) -> None:
        """Writes all assigned bytes to the peer's memory; returns when they have arrived. Raises the
        session's errors."""
        self._flush()

    def invalidate(self, *, discard: bool = False) -> None:
        """Drops cached blocks, so that the next access sees what other users wrote. Flushes first; with
        `discard`, drops unflushed bytes instead."""
        self._invalidate(discard)

    def stats(self) -> dict[str, int]:
        """Returns the number of READs and WRITEs (of adjacent rows: one) and their bytes, and the cache's
        hits, misses, evictions, cached and dirty bytes."""
        return self._memory.counters()

    def close(self) -> None:
        """Flushes and closes; the peer's memory stays allocated. Idempotent. Raises the session's errors."""
        if self._closed or self._inherited:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            self._memory.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The block's own error is more useful than a flush that fails for the same reason.
        with contextlib.suppress(VerbenaError) if error is not None else contextlib.nullcontext():
            self.close()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<far.Array{name} {self._shape} {self._dtype} at {self.session.peer}>"

    # What the asyncio form shares. `progress` is called from time to time, and may raise to end the access.

    def _get(self, key: Any, progress: Progress | None = None) -> Any:
        self._check_open()
        selection = select(key, self._shape)
        piece = self._piece(selection)
        if piece is not None:
            offset, found = piece
            self._read(offset, found, progress)
            return found if Ellipsis in selection.local else found[()]
        local = self._read_rows(selection.rows, progress)
        if selection.index_shape is not None and selection.takes_whole_rows:
            return local.reshape(selection.index_shape + self._row_shape)
        return local[selection.local]

    def _set(self, key: Any, value: ArrayLike | Array, progress: Progress | None = None) -> None:
        self._check_open()
        selection = select(key, self._shape)
        values = numpy().asarray(value) if isinstance(value, Array) else value
        with self._assigning:
            piece = self._piece(selection)
            if piece is not None:
                offset, changed = piece
                changed[...] = values
                self._write(offset, changed, progress)
            elif selection.takes_whole_rows:
                rows = selection.rows
                local = self._new(len(rows))
                if selection.index_shape is not None:
                    local.reshape(selection.index_shape + self._row_shape)[...] = values
                else:
                    local[selection.local] = values
                self._write_rows(rows, local, progress)
            else:
                selection = selection.unique(len(self))
                local = self._read_rows(selection.rows, progress)
                local[selection.local] = values
                self._write_rows(selection.rows, local, progress)

    def _take(
        self, rows: ArrayLike, out: NDArray[Any] | None = None, progress: Progress | None = None
    ) -> NDArray[Any]:
        self._check_open()
        numbers = _row_numbers(rows)
        shape = numbers.shape + self._row_shape
        if out is None:
            out = numpy().empty(shape, self._dtype)
        elif out.shape != shape or out.dtype != self._dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"take: out must be a C-contiguous array of shape {shape} and type {self._dtype}"
            )
        elif not out.flags.writeable:
            raise ValueError("take: out is read-only")
        self._move_rows(False, numbers, out, progress)
        return out

    def _put(self, rows: ArrayLike, values: ArrayLike, progress: Progress | None = None) -> None:
        self._check_open()
        np = numpy()
        numbers = _row_numbers(rows)
        shape = numbers.shape + self._row_shape
        source = np.ascontiguousarray(np.broadcast_to(np.asarray(values, self._dtype), shape))
        with self._assigning:
            self._move_rows(True, numbers, source, progress)

    def _flush(self, progress: Progress | None = None) -> None:
        self._check_open()
        self._run(self._memory.flush, progress=progress)

    def _invalidate(self, discard: bool, progress: Progress | None = None) -> None:
        self._check_open()
        self._run(self._memory.invalidate, discard=discard, progress=progress)

    # Inside

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

    def _read_rows(self, rows: Any, progress: Progress | None) -> NDArray[Any]:
        found = self._new(len(rows))
        if _is_contiguous(rows):
            self._read(rows.start * self._row_bytes, found, progress)
        else:
            self._move_rows(False, _row_numbers(rows), found, progress)
        return found

    def _write_rows(self, rows: Any, values: NDArray[Any], progress: Progress | None) -> None:
        if _is_contiguous(rows):
            self._write(rows.start * self._row_bytes, values, progress)
        else:
            self._move_rows(True, _row_numbers(rows), values, progress)

    def _read(self, offset: int, into: NDArray[Any], progress: Progress | None) -> None:
        owner = self._sync._keeper_of(into)
        self._run(self._memory.read, offset, _bytes_of(into), progress=progress, owner=owner)

    def _write(self, offset: int, data: NDArray[Any], progress: Progress | None) -> None:
        owner = self._sync._keeper_of(data)
        self._run(self._memory.write, offset, _bytes_of(data), progress=progress, owner=owner)

    def _move_rows(
        self, is_write: bool, rows: NDArray[Any], local: NDArray[Any], progress: Progress | None
    ) -> None:
        owner = self._sync._keeper_of(local)
        move, length = self._memory.move_rows, len(self)
        self._run(move, is_write, rows, length, _bytes_of(local), progress=progress, owner=owner)

    def _run(self, access: Callable[..., None], *arguments: Any, **options: Any) -> None:
        timeout_s = FOREVER if self.timeout_s is None else self.timeout_s
        try:
            access(*arguments, timeout_s=timeout_s, **options)
        except VerbenaError as error:
            raise self._sync._map(error) from None

    def _check_open(self) -> None:
        self._check_process("use a far.Array")
        if self._closed:
            raise setup_error("closed", operation="use a far.Array", detail="the array was closed")


def _bytes_of(array: NDArray[Any]) -> NDArray[Any]:
    """The array's bytes. A view as uint8, because not every dtype supports the buffer protocol."""
    return array.reshape(-1).view(numpy().uint8)


def _row_numbers(rows: Any) -> NDArray[Any]:
    """Returns row numbers as a contiguous int64 array. IndexError if they are no integers."""
    np = numpy()
    numbers = np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else np.asarray(rows)
    if numbers.size and not np.issubdtype(numbers.dtype, np.integer):
        raise IndexError(f"rows are integers, not {numbers.dtype}")
    return np.ascontiguousarray(numbers, np.int64).reshape(numbers.shape)  # type: ignore[no-any-return]


def _is_contiguous(rows: Any) -> bool:
    return isinstance(rows, range) and (rows.step == 1 or len(rows) < 2)


def _is_basic(key: Any) -> bool:
    return (isinstance(key, int) and not isinstance(key, bool)) or isinstance(key, slice) or key is Ellipsis


def _product(lengths: Sequence[int]) -> int:
    product = 1
    for length in lengths:
        product *= length
    return product


def _invalid(detail: str) -> VerbenaError:
    return setup_error("invalid_argument", operation="create a far.Array", detail=detail)
