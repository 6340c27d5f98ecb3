"""Blobs in a bucket, with a local cache of files. A requested blob that is not cached is fetched in pieces,
which are hashed as they arrive; concurrent requests follow the same fetch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from verbena.registry.blobs import BlobStore
from verbena.registry.bucket import Bucket, BucketFailed, ObjectMissing
from verbena.registry.digests import Digest
from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob

logger = logging.getLogger("verbena.registry")

PIECE = 4 << 20
RANGE_PIECE = 1 << 20
LANES = 4
"""Concurrent pieces of one blob."""
MAX_PIECES = 8
"""Concurrent pieces of all blobs: this bounds the memory in use."""
MAX_UPLOADS = 2


class ObjectCorrupted(Refused):
    """The bucket's bytes do not match the digest; readers do not get the last byte."""

    def __init__(self, digest: Digest) -> None:
        super().__init__("BLOB_UNKNOWN", "the stored blob is corrupted", detail={"digest": str(digest)})


@dataclass
class ActiveRecall:
    """A blob being fetched from the bucket."""

    digest: Digest
    size: int
    incoming: IncomingBlob
    held: int = 0
    """One bit for each received piece."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by a new event, at every change."""
    task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()


class Recall:
    """The recalls of one registry. `cache_bytes` bounds the files of blobs that are also in the bucket."""

    def __init__(self, blobs: BlobStore, bucket: Bucket, *, cache_bytes: int) -> None:
        self.bucket = bucket
        self.active: dict[Digest, ActiveRecall] = {}
        self.recalled = 0
        self._blobs = blobs
        self._cache_bytes = cache_bytes
        self._files: OrderedDict[Digest, int] = OrderedDict()  # in order of last use
        self.cached_bytes = 0
        self._pieces = asyncio.Semaphore(MAX_PIECES)
        self._uploads = asyncio.Semaphore(MAX_UPLOADS)

    def metric_values(self) -> list[tuple[str, str, float]]:
        """Returns (metric, label, value) tuples for metrics."""
        return [
            ("bytes", "sent", self.bucket.sent_bytes),
            ("bytes", "received", self.bucket.received_bytes),
            ("failures", "", self.bucket.failures),
            ("recalls", "", self.recalled),
            ("cached", "", self.cached_bytes),
        ]

    async def put(self, incoming: IncomingBlob, digest: Digest) -> str:
        """Uploads a verified blob; returns the object's name. Raises BucketFailed."""
        async with self._uploads:
            return await self.bucket.put(incoming.path, digest, incoming.received)

    async def forget(self, name: str) -> None:
        """Deletes an object that did not become a blob; if that fails, a later collection finds it."""
        with contextlib.suppress(BucketFailed):
            await asyncio.to_thread(self.bucket.delete, [name])

    def used(self, digest: Digest, size: int) -> None:
        """Records the use of a cached file; evicts the least recently used ones past `cache_bytes`."""
        if digest in self._files:
            self._files.move_to_end(digest)
            return
        self._files[digest] = size
        self.cached_bytes += size
        while self.cached_bytes > self._cache_bytes and self._files:
            oldest, length = self._files.popitem(last=False)
            self.cached_bytes -= length
            self._blobs.remove(oldest)  # readers that have it open can continue

    def start(self, digest: Digest, size: int, name: str) -> ActiveRecall:
        """Returns the recall of this blob, started if there is none yet."""
        active = self.active.get(digest)
        if active is None:
            incoming = self._blobs.incoming(algorithm=digest.algorithm, size=size)
            incoming.untrusted = True
            active = self.active[digest] = ActiveRecall(digest, size, incoming)
            active.task = asyncio.get_running_loop().create_task(self._run(active, name))
            # Retrieve the exception even if no task awaits it.
            active.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return active

    async def first(self, active: ActiveRecall) -> IncomingBlob:
        """Waits until there are bytes to send, or raises the recall's error while an error response is still
        possible."""
        assert active.task is not None
        while not active.held and not active.task.done():
            waiter = asyncio.ensure_future(active.changed.wait())
            await asyncio.wait((waiter, active.task), return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
        if active.task.done() and not active.task.cancelled() and (error := active.task.exception()):
            raise error
        return active.incoming

    async def read_range(self, name: str, start: int, end: int) -> AsyncIterator[memoryview]:
        """Yields bytes of an object in pieces, without caching them. Raises Refused, of which BucketFailed is
        one."""
        while start < end:
            length = min(RANGE_PIECE, end - start)
            try:
                async with self._pieces:
                    piece = await self.bucket.get(name, start, length)
            except ObjectMissing:
                raise Refused("BLOB_UNKNOWN") from None
            yield piece
            start += length

    async def close(self) -> None:
        tasks = [active.task for active in self.active.values() if active.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, active: ActiveRecall, name: str) -> None:
        incoming = active.incoming
        try:
            rest = iter(range(-(-active.size // PIECE)))
            await _all(partial(self._lane, active, name, rest), LANES)
            if await incoming.digest(active.digest.algorithm) != active.digest:
                logger.error(
                    "%s/%s does not match %s; run `verbena registry check`", self.bucket, name, active.digest
                )
                raise ObjectCorrupted(active.digest)
            await self._store(active)
            incoming.published()
            self.recalled += 1
        except BaseException as error:
            incoming.fail(error)
            incoming.path.unlink(missing_ok=True)
            if isinstance(error, ObjectMissing):
                logger.error("%s/%s is missing; run `verbena registry check`", self.bucket, name)
                raise Refused("BLOB_UNKNOWN", detail={"digest": str(active.digest)}) from error
            raise
        finally:
            self.active.pop(active.digest, None)
            active.notify()

    async def _lane(self, active: ActiveRecall, name: str, rest: Iterator[int]) -> None:
        for index in rest:
            start = index * PIECE
            async with self._pieces:
                piece = await self.bucket.get(name, start, min(PIECE, active.size - start))
                await active.incoming.write_at(start, piece)
            active.held |= 1 << index
            active.notify()

    async def _store(self, active: ActiveRecall) -> None:
        """Publishes the file in the cache if it fits, else deletes it."""
        if active.size > self._cache_bytes:
            active.incoming.path.unlink(missing_ok=True)
            return
        await active.incoming.sync()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._blobs.workers, self._blobs.publish, active.incoming, active.digest)
        self.used(active.digest, active.size)


async def _all(lane: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Runs `count` lanes; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(lane()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
