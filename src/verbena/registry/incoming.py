"""A blob on its way in: bytes are written and hashed by worker threads, without the GIL, while more arrive.
In order by `append()`, or at offsets by `write_at()` (ranges from several peers); readers may follow it.
It is nothing but a file in `incoming/` until the store publishes it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from verbena.registry import digests, writeback
from verbena.registry.digests import Digest
from verbena.registry.extents import Extents
from verbena.registry.feed import AHEAD, Feed

Piece = bytes | bytearray | memoryview

BATCH = 1 << 20
"""How many bytes are worth a hop to a worker."""
FLUSH = 8 << 20
"""After how many bytes the disk is set to work."""
MOST_PIECES = 1000  # below IOV_MAX


class IncomingFailed(Exception):
    """The blob will not come: whoever follows it must stop."""


class IncomingBlob:
    """Made by `BlobStore.incoming()`. One task feeds it by `append()`, or several by `write_at()`."""

    def __init__(
        self, path: Path, *, workers: Executor, algorithm: str = digests.DEFAULT, size: int | None = None
    ) -> None:
        self.path = path
        self.algorithm = algorithm
        self.size = size
        """How long it will be, if that is known."""
        self.guarded = False
        """Its bytes come from where nobody is trusted: followers get the last one when it is published."""
        self._workers = workers
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.fstat(self._fd).st_size
        self._extents = Extents(self._end)
        self._lock = threading.Lock()  # over the extents and who hashes
        self._hash = digests.new_hash(algorithm)
        self._hashed = 0
        self._hashing = False
        self._flushed = 0
        self._feed = Feed(workers, self._take, self._wake)
        self._followers: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None
        self._published = False

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def received(self) -> int:
        """How many bytes from the first on are in the file."""
        with self._lock:
            return self._extents.prefix

    @property
    def end(self) -> int:
        """Where the next `append()` goes: what was received or is being written."""
        return self._end

    @property
    def _following(self) -> int:
        """How many bytes followers may have."""
        now = self.received
        return now - 1 if self.guarded and not self._published and now and now == self.size else now

    def gaps(self) -> list[tuple[int, int]]:
        """What is missing of a blob whose size is known."""
        with self._lock:
            return self._extents.gaps(self.size or 0)

    async def append(self, pieces: Sequence[Piece], *, ahead: int = AHEAD) -> None:
        """Writes and hashes at the end, beside the caller; waits only while more than `ahead` bytes are on
        their way. What is given must stay as it is until `settle()`. Raises OSError of any batch before."""
        length = sum(len(piece) for piece in pieces)
        offset, self._end = self._end, self._end + length
        try:
            await self._feed.put(offset, pieces, length, ahead)
        except OSError:
            await self._start_again_after_failure()
            raise

    async def write_at(self, offset: int, piece: Piece) -> None:
        """Writes a stretch, and hashes it if it is next. When it returns, `piece` may be used again."""
        if self.size is not None and offset + len(piece) > self.size:
            raise ValueError(f"{len(piece)} bytes at {offset} are past the end of a blob of {self.size}")
        self._end = max(self._end, offset + len(piece))
        await asyncio.shield(self._start(offset, [piece]))

    async def settle(self) -> None:
        """Waits until everything given to `append()` is in the file. Raises OSError: then what could not be
        written is forgotten, and `append()` goes on after what could."""
        try:
            await self._feed.settle()
        except OSError:
            await self._start_again_after_failure()
            raise

    async def digest(self, algorithm: str) -> Digest:
        """The digest of everything received; reads the file again only if another algorithm was fed."""
        await self.settle()
        with self._lock:
            all_hashed = not self._hashing and self._hashed == self._extents.prefix
            if all_hashed and algorithm == self.algorithm:
                return Digest(algorithm, self._hash.hexdigest())  # a hop to a worker costs more
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._digest, algorithm)

    def hash_again(self) -> None:
        """What was hashed has been written anew. Not while anything is being written."""
        with self._lock:
            self._hash, self._hashed = digests.new_hash(self.algorithm), 0

    async def sync(self) -> None:
        """Everything is on disk."""
        await asyncio.get_running_loop().run_in_executor(self._workers, os.fdatasync, self._fd)

    async def arrived(self, offset: int) -> int:
        """Waits until the byte at `offset` is there, and says how many are from the first on; less or
        equal to `offset` only at the end. Raises IncomingFailed if it will not come."""
        while (now := self._following) <= offset and now != self.size:
            if self._failure is not None:
                raise IncomingFailed(str(self._failure)) from self._failure
            if self._published:
                return now
            follower: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._followers.add(follower)
            try:
                await follower
            finally:
                self._followers.discard(follower)
        return now

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that have arrived. Also after it was published or discarded, until `close()`."""
        return os.pread(self._fd, length, offset)

    def fileno(self) -> int:
        return self._fd

    def fail(self, reason: BaseException) -> None:
        """Those who follow it are told that it will not come."""
        self._failure = self._failure or reason
        self._wake()

    def published(self) -> None:
        self._published = True
        self._wake()

    def close(self) -> None:
        """Gives the descriptor back, after what is on its way from `append()`; the file stays. Not during
        `write_at()`."""
        self._feed.when_idle(self._close)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self._close()  # a source's blob has readers that it does not know of

    def _start(self, offset: int, pieces: Sequence[Piece]) -> asyncio.Future[None]:
        job = asyncio.get_running_loop().run_in_executor(self._workers, self._take, offset, pieces)
        job.add_done_callback(lambda _: self._wake())
        return job

    async def _start_again_after_failure(self) -> None:
        with contextlib.suppress(OSError):
            await self._feed.settle()
        with self._lock:
            self._end = self._extents.prefix
            self._extents = Extents(self._end)
        os.ftruncate(self._fd, self._end)

    def _wake(self) -> None:
        for follower in tuple(self._followers):
            if not follower.done():
                follower.set_result(None)

    # What follows runs on workers.

    def _take(self, offset: int, pieces: Sequence[Piece]) -> None:
        end = _write_all(self._fd, pieces, offset)
        with self._lock:
            self._extents.add(offset, end)
            first, self._flushed = self._flushed, max(self._flushed, end // FLUSH * FLUSH)
        if self._flushed > first:
            writeback.start(self._fd, first, self._flushed - first)
        self._hash_if_next(offset, end, pieces)

    def _hash_if_next(self, offset: int, end: int, pieces: Sequence[Piece]) -> None:
        with self._lock:
            if self._hashing or offset != self._hashed:
                return  # whoever hashes comes to it, and reads it from the file
            self._hashing = True
        try:
            for piece in pieces:
                self._hash.update(piece)
            self._hashed = end
            self._hash_what_follows()
        except BaseException:
            with self._lock:
                self._hashing = False
            raise

    def _hash_what_follows(self) -> None:
        """Hashes from the file until there is a gap. The caller holds `_hashing`, and gives it back."""
        while True:
            with self._lock:
                end = self._extents.prefix
                if end <= self._hashed:
                    self._hashing = False  # in the same breath: who adds the next stretch must see it
                    return
            while self._hashed < end:
                data = os.pread(self._fd, min(BATCH, end - self._hashed), self._hashed)
                if not data:
                    raise OSError(errno.EIO, "the file is shorter than what was written to it")
                self._hash.update(data)
                self._hashed += len(data)

    def _digest(self, algorithm: str) -> Digest:
        if algorithm != self.algorithm:
            self.algorithm, self._hash, self._hashed = algorithm, digests.new_hash(algorithm), 0
        with self._lock:
            self._hashing = True
        self._hash_what_follows()
        return Digest(algorithm, self._hash.hexdigest())


def _write_all(fd: int, pieces: Sequence[Piece], offset: int) -> int:
    """Writes every byte; returns where it ended."""
    rest = list(pieces)
    while rest:
        written = os.pwritev(fd, rest[:MOST_PIECES], offset)
        offset += written
        while rest and written >= len(rest[0]):
            written -= len(rest[0])
            del rest[0]
        if written:
            rest[0] = memoryview(rest[0])[written:]
    return offset
