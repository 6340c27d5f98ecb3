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
STRETCH = 1 << 20
LANES = 4
"""Concurrent pieces of one blob."""
MOST_PIECES = 8
"""Concurrent pieces of all blobs: this bounds the memory in use."""
MOST_UPLOADS = 2


class ObjectSpoilt(Refused):
    """The bucket's bytes do not match the digest; readers do not get the last byte."""

    def __init__(self, digest: Digest) -> None:
        super().__init__("BLOB_UNKNOWN", "the stored blob is spoilt", detail={"digest": str(digest)})


@dataclass
class Coming:
    """A blob being fetched from the bucket."""

    digest: Digest
    size: int
    incoming: IncomingBlob
    held: int = 0
    """One bit for each received piece."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by a new event, at every change."""
    task: asyncio.Task[None] | None = None

    def ring(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()


class Recall:
    """The recalls of one registry. `cache_bytes` bounds the files of blobs that are also in the bucket."""

    def __init__(self, blobs: BlobStore, bucket: Bucket, *, cache_bytes: int) -> None:
        self.bucket = bucket
        self.coming: dict[Digest, Coming] = {}
        self.recalled = 0
        self._blobs = blobs
        self._cache_bytes = cache_bytes
        self._files: OrderedDict[Digest, int] = OrderedDict()  # in order of last use
        self.cached_bytes = 0
        self._pieces = asyncio.Semaphore(MOST_PIECES)
        self._uploads = asyncio.Semaphore(MOST_UPLOADS)

    def figures(self) -> list[tuple[str, str, float]]:
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

    def start(self, digest: Digest, size: int, name: str) -> Coming:
        """Returns the recall of this blob, started if there is none yet."""
        coming = self.coming.get(digest)
        if coming is None:
            incoming = self._blobs.incoming(algorithm=digest.algorithm, size=size)
            incoming.guarded = True
            coming = self.coming[digest] = Coming(digest, size, incoming)
            coming.task = asyncio.get_running_loop().create_task(self._run(coming, name))
            # Retrieve the exception even if no task awaits it.
            coming.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return coming

    async def first(self, coming: Coming) -> IncomingBlob:
        """Waits until there are bytes to send, or raises the recall's error while an error response is still
        possible."""
        assert coming.task is not None
        while not coming.held and not coming.task.done():
            waiter = asyncio.ensure_future(coming.changed.wait())
            await asyncio.wait((waiter, coming.task), return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
        if coming.task.done() and not coming.task.cancelled() and (error := coming.task.exception()):
            raise error
        return coming.incoming

    async def stretch(self, name: str, start: int, end: int) -> AsyncIterator[memoryview]:
        """Yields bytes of an object in pieces, without caching them. Raises Refused, of which BucketFailed is
        one."""
        while start < end:
            length = min(STRETCH, end - start)
            try:
                async with self._pieces:
                    piece = await self.bucket.get(name, start, length)
            except ObjectMissing:
                raise Refused("BLOB_UNKNOWN") from None
            yield piece
            start += length

    async def close(self) -> None:
        tasks = [coming.task for coming in self.coming.values() if coming.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, coming: Coming, name: str) -> None:
        incoming = coming.incoming
        try:
            rest = iter(range(-(-coming.size // PIECE)))
            await _all(partial(self._lane, coming, name, rest), LANES)
            if await incoming.digest(coming.digest.algorithm) != coming.digest:
                logger.error(
                    "%s/%s is not %s; run `verbena registry check`", self.bucket, name, coming.digest
                )
                raise ObjectSpoilt(coming.digest)
            await self._store(coming)
            incoming.published()
            self.recalled += 1
        except BaseException as error:
            incoming.fail(error)
            incoming.path.unlink(missing_ok=True)
            if isinstance(error, ObjectMissing):
                logger.error("%s/%s is gone; run `verbena registry check`", self.bucket, name)
                raise Refused("BLOB_UNKNOWN", detail={"digest": str(coming.digest)}) from error
            raise
        finally:
            self.coming.pop(coming.digest, None)
            coming.ring()

    async def _lane(self, coming: Coming, name: str, rest: Iterator[int]) -> None:
        for index in rest:
            start = index * PIECE
            async with self._pieces:
                piece = await self.bucket.get(name, start, min(PIECE, coming.size - start))
                await coming.incoming.write_at(start, piece)
            coming.held |= 1 << index
            coming.ring()

    async def _store(self, coming: Coming) -> None:
        """Publishes the file in the cache if it fits, else deletes it."""
        if coming.size > self._cache_bytes:
            coming.incoming.path.unlink(missing_ok=True)
            return
        await coming.incoming.sync()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._blobs.workers, self._blobs.publish, coming.incoming, coming.digest)
        self.used(coming.digest, coming.size)


async def _all(lane: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Runs `count` lanes; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(lane()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
