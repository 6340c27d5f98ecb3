"""Queries the upstream registries in turn, for an event loop, and records which tags came from them and when
each was last checked. The record is in the database, so that a restart does not confuse those tags with
pushed ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from verbena.registry.digests import Digest
from verbena.registry.manifests import Manifest
from verbena.registry.nodes.upstream import Body, Upstream, UpstreamFailed
from verbena.registry.service import Registry

Result = TypeVar("Result")

THREADS = 8
_TABLE = (
    "CREATE TABLE IF NOT EXISTS upstream_tags (repository TEXT NOT NULL, tag TEXT NOT NULL,"
    " checked REAL NOT NULL, PRIMARY KEY (repository, tag)) WITHOUT ROWID"
)


class Upstreams:
    """True if any is configured. A registry that fails counts as not having the content, and the next is
    tried."""

    def __init__(self, urls: Sequence[str], registry: Registry, tag_lifetime_s: float) -> None:
        self.all = [Upstream(url) for url in urls]
        self.problem = ""
        self.received_bytes = 0
        self._registry = registry
        self._tag_lifetime_s = tag_lifetime_s
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix="registry-upstream")

    def __bool__(self) -> bool:
        return bool(self.all)

    async def open(self) -> None:
        if self.all:
            await self._registry.database.write(lambda c: c.execute(_TABLE).close())

    async def blob(self, repository: str, digest: Digest, start: int = 0) -> Body | None:
        """Returns the blob from offset `start`, from the first registry that has it, or None."""
        return await self._first(lambda upstream: upstream.blob(repository, digest, start=start))

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        found = await self._first(lambda upstream: upstream.manifest(repository, reference))
        if found is not None and ":" not in reference:
            values = (repository, reference, time.time())

            def note(connection: Any) -> None:
                connection.execute("INSERT OR REPLACE INTO upstream_tags VALUES (?, ?, ?)", values)

            await self._registry.database.write(note, durable=False)
        return found

    def is_stale(self, repository: str, tag: str) -> bool:
        """Whether a tag came from upstream and was last checked more than `tag_lifetime_s` ago."""
        if not self.all:
            return False
        row = self._registry.database.row(
            "SELECT checked FROM upstream_tags WHERE repository = ? AND tag = ?", repository, tag
        )
        return row is not None and time.time() - row[0] > self._tag_lifetime_s

    async def _first(self, ask: Callable[[Upstream], Result | None]) -> Result | None:
        loop = asyncio.get_running_loop()
        for upstream in self.all:
            try:
                found = await loop.run_in_executor(self._workers, ask, upstream)
            except UpstreamFailed as error:
                self.problem = str(error)
                continue
            if found is not None:
                return found
        return None
