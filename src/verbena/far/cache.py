"""A write-back LRU cache of a window's bytes, in blocks, with a fixed capacity.

Each block tracks its valid bytes and, of these, the dirty ones. State changes under one lock; transfers run
outside it. A transfer first claims all its blocks at once, and other accesses to them wait. So no thread
waits for a claim while it holds one, and no fetch overtakes a write."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from verbena.errors import setup_error
from verbena.far.ranges import Ranges
from verbena.far.window import Window

_MAX_WRITE_BYTES = 8 << 20  # the most bytes combined into one transfer


class _Block:
    __slots__ = ("data", "dirty", "valid")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.valid = Ranges()
        self.dirty = Ranges()  # a subset of `valid`


class BlockCache:
    """Caches bytes [0, length) of `window`. Thread-safe. Methods raise the session's errors."""

    def __init__(self, window: Window, *, length: int, cache_bytes: int, block_bytes: int) -> None:
        if not 0 < block_bytes <= cache_bytes:
            detail = f"block_bytes is {block_bytes}: it must be from 1 to cache_bytes, {cache_bytes}"
            raise setup_error("invalid_argument", operation="create a far.Array", detail=detail)
        self._window = window
        self._length = length
        self._block_bytes = block_bytes
        self._capacity = cache_bytes // block_bytes
        # One access claims at most half of the cache, so that two can proceed in parallel.
        self._group = max(1, self._capacity // 2)
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._reserved = 0  # blocks that current claims will add
        self._claims: list[range] = []
        self._changed = threading.Condition()
        self._counters = {"hits": 0, "misses": 0, "evictions": 0}

    # Access

    def read(self, offset: int, into: memoryview) -> None:
        """Fills `into`, from the cache where possible."""
        if self._read_hit(offset, into):
            return
        if self._spans(offset, into.nbytes) > self._group:
            self._read_around(offset, into)
            return
        numbers = self._numbers(offset, into.nbytes)
        with self._changed:
            self._wait_unclaimed(numbers)
            if self._has(numbers, offset, into.nbytes):
                self._counters["hits"] += 1
                self._copy_out(offset, into)
                return
            self._counters["misses"] += 1
        with self._loaded(numbers):
            self._copy_out(offset, into)

    def _read_hit(self, offset: int, into: memoryview) -> bool:
        """The fast path: all bytes are valid in one block, and there is no claim. Returns whether it filled
        `into`."""
        number, low = divmod(offset, self._block_bytes)
        high = low + into.nbytes
        with self._changed:
            block = self._blocks.get(number)
            if self._claims or block is None or high > self._block_bytes or not block.valid.covers(low, high):
                return False
            into[:] = block.data[low:high]
            self._blocks.move_to_end(number)
            self._counters["hits"] += 1
            return True

    def write(self, offset: int, data: memoryview) -> None:
        """Stores `data` in the cache; it is written when its blocks are evicted, or by flush()."""
        if self._spans(offset, data.nbytes) > self._group:
            self._write_around(offset, data)
            return
        numbers = self._numbers(offset, data.nbytes)
        with self._changed:
            self._wait_unclaimed(numbers)
            if all(number in self._blocks for number in numbers):
                self._copy_in(offset, data)
                return
        with self._room_for(numbers):
            self._copy_in(offset, data)

    def prefetch(self, offset: int, length: int) -> None:
        """Fetches the missing bytes of a range of at most `prefetch_bytes`."""
        numbers = self._numbers(offset, length)
        with self._changed:
            if self._has(numbers, offset, length):
                return
        with self._loaded(numbers):
            pass

    @property
    def prefetch_bytes(self) -> int:
        """The longest range that prefetch() accepts."""
        return self._group * self._block_bytes

    def flush(self) -> None:
        """Writes all dirty bytes; returns when they are in the peer's memory."""
        with self._changed:
            dirty = sorted(number for number, block in self._blocks.items() if block.dirty)
        for numbers in _neighbours(dirty, max(1, _MAX_WRITE_BYTES // self._block_bytes)):
            with self._claim(numbers):
                self._write_back(numbers)

    def invalidate(self, *, discard: bool = False) -> None:
        """Drops all blocks, after a flush; with `discard`, drops dirty bytes instead of flushing."""
        everything = range(self._spans(0, self._length))
        while True:
            if not discard:
                self.flush()
            with self._claim(everything), self._changed:
                if discard or not any(block.dirty for block in self._blocks.values()):
                    self._blocks.clear()
                    return

    def counters(self) -> dict[str, int]:
        with self._changed:
            cached = sum(len(block.data) for block in self._blocks.values())
            dirty = sum(stop - start for block in self._blocks.values() for start, stop in block.dirty)
            return {**self._counters, "cached_bytes": cached, "dirty_bytes": dirty}

    # Accesses larger than half of the cache bypass it, but stay consistent with it.

    def _read_around(self, offset: int, into: memoryview) -> None:
        numbers = self._numbers(offset, into.nbytes)
        with self._claim(numbers):
            self._window.read(offset, into)
            with self._changed:
                for number in self._present(numbers):
                    for start, stop in self._blocks[number].dirty:
                        begin, data = number * self._block_bytes, self._blocks[number].data
                        low, high = max(begin + start, offset), min(begin + stop, offset + into.nbytes)
                        if low < high:
                            into[low - offset : high - offset] = data[low - begin : high - begin]

    def _write_around(self, offset: int, data: memoryview) -> None:
        numbers = self._numbers(offset, data.nbytes)
        with self._claim(numbers):
            # The first and last block may hold dirty bytes outside this range: write them before dropping the
            # blocks.
            self._write_back(self._present(numbers))
            self._window.write(offset, data)
            with self._changed:
                for number in self._present(numbers):
                    del self._blocks[number]

    # Claims

    @contextlib.contextmanager
    def _claim(self, numbers: range) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._is_free(numbers))
            self._claims.append(numbers)
        try:
            yield
        finally:
            self._release([numbers])

    def _release(self, spans: Iterable[range]) -> None:
        with self._changed:
            for span in spans:
                self._claims.remove(span)
            self._changed.notify_all()

    def _is_free(self, span: range) -> bool:
        return not any(span.start < other.stop and other.start < span.stop for other in self._claims)

    def _wait_unclaimed(self, span: range) -> None:
        if self._claims:
            self._changed.wait_for(lambda: self._is_free(span))

    # Loading and making room

    @contextlib.contextmanager
    def _loaded(self, numbers: range) -> Iterator[None]:
        """Claims the blocks, makes room and fetches their missing bytes. The body runs under the lock."""
        with self._room_for(numbers, fetch=True):
            yield

    @contextlib.contextmanager
    def _room_for(self, numbers: range, *, fetch: bool = False) -> Iterator[None]:
        """Claims the blocks and makes room for the missing ones. The body runs under the lock with all blocks
        present, and fully valid if `fetch`."""
        victims: list[int] = []
        with self._changed:
            self._changed.wait_for(lambda: self._can_begin(numbers))
            new = [number for number in numbers if number not in self._blocks]
            victims = self._choose_victims(numbers, len(new))
            spans = [numbers, *(range(n, n + 1) for n in victims)]
            self._claims += spans
            # Evicted blocks free their room only after they have been written back.
            self._reserved += len(new)
        fetched: list[tuple[int, memoryview]] = []
        try:
            try:
                self._write_back(sorted(victims))
                with self._changed:
                    for number in victims:
                        del self._blocks[number]
                        self._counters["evictions"] += 1
                if fetch:
                    fetched = self._fetch(numbers)
            except BaseException:
                with self._changed:
                    self._reserved -= len(new)
                raise
            with self._changed:
                self._reserved -= len(new)
                self._install(numbers, fetched)
                yield
        finally:
            self._release(spans)

    def _can_begin(self, numbers: range) -> bool:
        if not self._is_free(numbers):
            return False
        new = sum(number not in self._blocks for number in numbers)
        return len(self._choose_victims(numbers, new)) >= self._excess(new)

    def _excess(self, new: int) -> int:
        return max(0, len(self._blocks) + self._reserved + new - self._capacity)

    def _choose_victims(self, numbers: range, new: int) -> list[int]:
        """Returns as many blocks as must be evicted, least recently used first; fewer if the others are
        claimed."""
        victims: list[int] = []
        wanted = self._excess(new)
        for number in self._blocks:
            if len(victims) == wanted:
                break
            if number not in numbers and self._is_free(range(number, number + 1)):
                victims.append(number)
        return victims

    def _fetch(self, numbers: range) -> list[tuple[int, memoryview]]:
        """Reads the missing bytes of claimed blocks, adjacent ranges in one transfer; returns (offset, bytes)
        pieces."""
        with self._changed:
            gaps = [gap for number in numbers for gap in self._gaps(number)]
        pieces = []
        for start, stop in _joined(gaps):
            piece = memoryview(bytearray(stop - start))
            self._window.read(start, piece)
            pieces.append((start, piece))
        return pieces

    def _gaps(self, number: int) -> Iterator[tuple[int, int]]:
        begin, length = number * self._block_bytes, self._block_length(number)
        block = self._blocks.get(number)
        if block is None:
            yield begin, begin + length
        else:
            yield from ((begin + start, begin + stop) for start, stop in block.valid.gaps(0, length))

    def _install(self, numbers: range, fetched: list[tuple[int, memoryview]]) -> None:
        for number in numbers:
            if number not in self._blocks:
                length = self._block_length(number)
                whole = fetched and fetched[0][1].nbytes == length and len(numbers) == 1
                # A piece of exactly one block is used as its buffer; a longer one would stay in memory after
                # its blocks.
                self._blocks[number] = _Block(fetched[0][1] if whole else memoryview(bytearray(length)))
                if whole:
                    self._blocks[number].valid.add(0, length)
                    fetched = []
            self._blocks.move_to_end(number)
        for start, piece in fetched:
            for number, low, high in self._parts(start, piece.nbytes):
                begin, block = number * self._block_bytes, self._blocks[number]
                block.data[low:high] = piece[begin + low - start : begin + high - start]
                block.valid.add(low, high)

    def _write_back(self, numbers: Sequence[int]) -> None:
        """Writes the dirty bytes of claimed blocks, adjacent ones in one transfer."""
        with self._changed:
            extents = [
                (number * self._block_bytes + start, self._blocks[number].data[start:stop])
                for number in numbers
                if number in self._blocks
                for start, stop in self._blocks[number].dirty
            ]
        # Claimed blocks do not change, so their bytes can be read without the lock.
        for start, stop in _joined([(offset, offset + data.nbytes) for offset, data in extents]):
            inside = [data for offset, data in extents if start <= offset < stop]
            joined = inside[0] if len(inside) == 1 else memoryview(b"".join(inside))
            self._window.write(start, joined)
        with self._changed:
            for number in self._present(numbers):
                self._blocks[number].dirty.clear()

    # These run under the lock.

    def _has(self, numbers: range, offset: int, length: int) -> bool:
        return all(
            number in self._blocks and self._blocks[number].valid.covers(low, high)
            for number, low, high in self._parts(offset, length)
        )

    def _present(self, numbers: Sequence[int]) -> list[int]:
        if len(numbers) > len(self._blocks):
            return sorted(number for number in self._blocks if number in numbers)
        return [number for number in numbers if number in self._blocks]

    def _copy_out(self, offset: int, into: memoryview) -> None:
        for number, low, high in self._parts(offset, into.nbytes):
            begin = number * self._block_bytes - offset
            into[begin + low : begin + high] = self._blocks[number].data[low:high]
            self._blocks.move_to_end(number)

    def _copy_in(self, offset: int, data: memoryview) -> None:
        for number, low, high in self._parts(offset, data.nbytes):
            begin, block = number * self._block_bytes - offset, self._blocks[number]
            block.data[low:high] = data[begin + low : begin + high]
            block.valid.add(low, high)
            block.dirty.add(low, high)
            self._blocks.move_to_end(number)

    # Arithmetic

    def _numbers(self, offset: int, length: int) -> range:
        return range(offset // self._block_bytes, -(-(offset + length) // self._block_bytes))

    def _spans(self, offset: int, length: int) -> int:
        return len(self._numbers(offset, length))

    def _block_length(self, number: int) -> int:
        return min(self._block_bytes, self._length - number * self._block_bytes)

    def _parts(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yields the blocks of a byte range, each with the part [low, high) of it within the block."""
        for number in self._numbers(offset, length):
            begin = number * self._block_bytes
            low, high = max(offset - begin, 0), min(offset + length - begin, self._block_bytes)
            yield number, low, high


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merges adjacent ranges of a sorted sequence."""
    first: int | None = None
    end = 0
    for start, stop in ranges:
        if first is not None and start == end:
            end = stop
            continue
        if first is not None:
            yield first, end
        first, end = start, stop
    if first is not None:
        yield first, end


def _neighbours(numbers: list[int], most: int) -> Iterator[range]:
    """Groups consecutive numbers into ranges of at most `most`."""
    for start, stop in _joined((number, number + 1) for number in numbers):
        for first in range(start, stop, most):
            yield range(first, min(first + most, stop))
