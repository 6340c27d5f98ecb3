"""A blob being received: worker threads write and hash its bytes, without the GIL, while more arrive. Input
is in order (`append()`) or at offsets (`write_at()`, ranges from several peers); readers may follow. It is
only a file in `incoming/` until the store publishes it."""

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
"""The batch size from which handing over to a worker pays off."""
FLUSH = 8 << 20
"""Write-back to disk is started each time this many bytes have been written."""
MAX_PIECES = 1000  # below IOV_MAX


class IncomingFailed(Exception):
    """The blob will not be completed; readers that follow it must stop."""


class IncomingBlob:
    """Created by `BlobStore.incoming()`. Either one task calls `append()`, or several call `write_at()`."""

    def __init__(
        self, path: Path, *, workers: Executor, algorithm: str = digests.DEFAULT, size: int | None = None
    ) -> None:
        self.path = path
        self.algorithm = algorithm
        self.size = size
        """The final size, if it is known."""
        self.untrusted = False
        """The source is not trusted: followers get the last byte only after the digest was verified and
        published."""
        self._workers = workers
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.fstat(self._fd).st_size
        self._extents = Extents(self._end)
        self._lock = threading.Lock()  # guards the extents and _hashing
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
        """The number of bytes in the file without a gap from offset 0."""
        with self._lock:
            return self._extents.prefix

    @property
    def end(self) -> int:
        """The offset of the next `append()`, behind everything received or queued."""
        return self._end

    @property
    def _following(self) -> int:
        """The number of bytes that followers may read."""
        now = self.received
        return now - 1 if self.untrusted and not self._published and now and now == self.size else now

    def gaps(self) -> list[tuple[int, int]]:
        """The missing ranges of a blob with known size."""
        with self._lock:
            return self._extents.gaps(self.size or 0)

    async def append(self, pieces: Sequence[Piece], *, ahead: int = AHEAD) -> None:
        """Queues pieces to be written and hashed at the end; waits only while more than `ahead` bytes are
        queued. Do not change the pieces before `settle()`. Raises OSError of an earlier batch."""
        length = sum(len(piece) for piece in pieces)
        offset, self._end = self._end, self._end + length
        try:
            await self._feed.put(offset, pieces, length, ahead)
        except OSError:
            await self._start_again_after_failure()
            raise

    async def write_at(self, offset: int, piece: Piece) -> None:
        """Writes a piece at `offset` and hashes it if it is next. On return the caller may reuse `piece`.
        Raises OSError."""
        if self.size is not None and offset + len(piece) > self.size:
            raise ValueError(f"{len(piece)} bytes at {offset} are past the end of a blob of {self.size}")
        self._end = max(self._end, offset + len(piece))
        await asyncio.shield(self._start(offset, [piece]))

    async def settle(self) -> None:
        """Waits until everything given to `append()` is in the file. After OSError the unwritten bytes are
        dropped, and `append()` continues behind the written ones."""
        try:
            await self._feed.settle()
        except OSError:
            await self._start_again_after_failure()
            raise

    async def digest(self, algorithm: str) -> Digest:
        """The digest of the received bytes; reads the file again only if `algorithm` differs from the one in
        use."""
        await self.settle()
        with self._lock:
            all_hashed = not self._hashing and self._hashed == self._extents.prefix
            if all_hashed and algorithm == self.algorithm:
                return Digest(algorithm, self._hash.hexdigest())  # cheaper than a hop to a worker
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._digest, algorithm)

    def restart_hashing(self) -> None:
        """Restarts hashing after hashed bytes were rewritten. Call it only while no write is in progress."""
        with self._lock:
            self._hash, self._hashed = digests.new_hash(self.algorithm), 0

    async def sync(self) -> None:
        """Syncs the file's data to disk. Raises OSError."""
        await asyncio.get_running_loop().run_in_executor(self._workers, os.fdatasync, self._fd)

    async def arrived(self, offset: int) -> int:
        """Waits until the byte at `offset` has arrived; returns the number of bytes available from offset 0.
        A result of at most `offset` means the end. Raises IncomingFailed."""
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
        """Reads bytes that have arrived. Works until `close()`, also after publishing or discarding."""
        return os.pread(self._fd, length, offset)

    def fileno(self) -> int:
        return self._fd

    def fail(self, reason: BaseException) -> None:
        """Makes followers raise IncomingFailed. The first reason is kept."""
        self._failure = self._failure or reason
        self._wake()

    def published(self) -> None:
        self._published = True
        self._wake()

    def close(self) -> None:
        """Closes the descriptor once queued batches are done; the file stays. Do not call it during
        `write_at()`."""
        self._feed.when_idle(self._close)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self._close()  # readers that the source does not know may hold the last reference

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

    # The methods below run on workers.

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
                return  # the worker that is hashing reads these bytes from the file later
            self._hashing = True
        try:
            # A peer may still be able to change the memory of its pieces: the file's bytes are hashed.
            if not self.untrusted:
                for piece in pieces:
                    self._hash.update(piece)
                self._hashed = end
            self._hash_contiguous()
        except BaseException:
            with self._lock:
                self._hashing = False
            raise

    def _hash_contiguous(self) -> None:
        """Hashes from the file up to the first gap. The caller has set `_hashing`; this clears it."""
        while True:
            with self._lock:
                end = self._extents.prefix
                if end <= self._hashed:
                    self._hashing = False  # under the same lock as the check: the next writer must see it
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
        self._hash_contiguous()
        return Digest(algorithm, self._hash.hexdigest())


def _write_all(fd: int, pieces: Sequence[Piece], offset: int) -> int:
    """Writes all pieces at `offset`; returns the end offset. Raises OSError."""
    rest = list(pieces)
    while rest:
        written = os.pwritev(fd, rest[:MAX_PIECES], offset)
        offset += written
        while rest and written >= len(rest[0]):
            written -= len(rest[0])
            del rest[0]
        if written:
            rest[0] = memoryview(rest[0])[written:]
    return offset
