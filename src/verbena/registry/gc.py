"""Garbage collection and retention, while clients push and pull. Uses short write transactions, so it may run
within the server or beside it. Links, tags and stray files must be older than `grace_s` to be removed; a blob
file is unlinked within the transaction that finds it unreferenced."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from verbena.registry import digests
from verbena.registry.blobs import BlobStore
from verbena.registry.bucket import Bucket, require_bucket
from verbena.registry.database import Database

BATCH = 64
"""Rows that one transaction removes: this bounds the time for which writers wait."""
STRAY_OBJECT_S = 3600.0
"""The minimum age of an unreferenced object before deletion: its upload may still be in progress."""

# A manifest is kept if it has a tag, is part of another one, or its subject is in the repository.
_UNREFERENCED_MANIFESTS = """
SELECT id FROM manifests AS m WHERE touched < ?
  AND NOT EXISTS (SELECT 1 FROM tags WHERE manifest = m.id)
  AND NOT EXISTS (SELECT 1 FROM parts WHERE repository = m.repository AND digest = m.digest)
  AND NOT EXISTS (SELECT 1 FROM manifests AS s WHERE s.repository = m.repository AND s.digest = m.subject)
LIMIT ?
"""
_OLD_TAGS = """
SELECT repository, name FROM (
  SELECT repository, name, touched,
         row_number() OVER (PARTITION BY repository ORDER BY touched DESC, name DESC) AS place FROM tags)
WHERE place > ? AND touched < ? LIMIT ?
"""
_UNUSED_LINKS = """
SELECT repository, digest FROM links AS l WHERE touched < ?
  AND NOT EXISTS (SELECT 1 FROM parts WHERE repository = l.repository AND digest = l.digest)
LIMIT ?
"""
_UNLINKED_BLOBS = """
SELECT digest, size, object FROM blobs AS b
WHERE NOT EXISTS (SELECT 1 FROM links WHERE digest = b.digest) LIMIT ?
"""
_EMPTY_REPOSITORIES = """
DELETE FROM repositories AS r WHERE created < ?
  AND NOT EXISTS (SELECT 1 FROM links WHERE repository = r.id)
  AND NOT EXISTS (SELECT 1 FROM manifests WHERE repository = r.id)
  AND NOT EXISTS (SELECT 1 FROM uploads WHERE repository = r.name)
"""


@dataclass(frozen=True)
class Policy:
    """What may be removed. Times are in seconds; keep_tags or keep_untagged_s of 0 disables that retention
    rule."""

    grace_s: float = 3600.0
    upload_timeout_s: float = 86_400.0
    keep_tags: int = 0
    keep_untagged_s: float = 0.0


@dataclass
class Collected:
    """The number of removed entries of each kind."""

    tags: int = 0
    manifests: int = 0
    links: int = 0
    blobs: int = 0
    bytes: int = 0
    uploads: int = 0
    objects: int = 0
    """Objects in the bucket that no row referred to."""
    repositories: int = 0

    def __str__(self) -> str:
        parts = [f"{getattr(self, f.name)} {f.name}" for f in fields(self) if getattr(self, f.name)]
        return ", ".join(parts) or "nothing"


class Collector:
    """One collection over `blobs` and `database`; `database` should be a connection of its own."""

    def __init__(
        self,
        blobs: BlobStore,
        database: Database,
        policy: Policy,
        *,
        pause: Callable[[], None] = lambda: None,
        bucket: Bucket | None = None,
    ) -> None:
        self._blobs = blobs
        self._database = database
        self._policy = policy
        self._pause = pause  # called between transactions, to let other writers in
        self._bucket = bucket
        self._objects: list[str] = []  # objects of removed rows
        self.collected = Collected()

    def run(self, now: float | None = None) -> Collected:
        now = time.time() if now is None else now
        policy = self._policy
        if policy.keep_tags:
            self._repeat(lambda c: self._drop_tags(c, now - policy.grace_s))
        if policy.keep_untagged_s:
            self._repeat(lambda c: self._drop_manifests(c, now - policy.keep_untagged_s))
        self._repeat(lambda c: self._drop_links(c, now - policy.grace_s))
        self._repeat(self._drop_blobs)
        self._drop_objects(now - max(policy.grace_s, STRAY_OBJECT_S))
        self._drop_uploads(now - policy.upload_timeout_s)
        self._drop_stray_files(now - policy.grace_s)
        gone = self._database.write_here(
            lambda c: c.execute(_EMPTY_REPOSITORIES, (now - policy.grace_s,)).rowcount
        )
        self.collected.repositories += gone
        return self.collected

    def _repeat(self, step: Callable[[sqlite3.Connection], int]) -> None:
        while self._database.write_here(step) == BATCH:
            self._pause()

    def _drop_tags(self, connection: sqlite3.Connection, before: float) -> int:
        rows = connection.execute(_OLD_TAGS, (self._policy.keep_tags, before, BATCH)).fetchall()
        connection.executemany("DELETE FROM tags WHERE repository = ? AND name = ?", rows)
        self.collected.tags += len(rows)
        return len(rows)

    def _drop_manifests(self, connection: sqlite3.Connection, before: float) -> int:
        rows = connection.execute(_UNREFERENCED_MANIFESTS, (before, BATCH)).fetchall()
        connection.executemany("DELETE FROM manifests WHERE id = ?", rows)
        self.collected.manifests += len(rows)
        # Manifests that only these referred to are now unreferenced, so another round is needed.
        return BATCH if rows else 0

    def _drop_links(self, connection: sqlite3.Connection, before: float) -> int:
        rows = connection.execute(_UNUSED_LINKS, (before, BATCH)).fetchall()
        connection.executemany("DELETE FROM links WHERE repository = ? AND digest = ?", rows)
        self.collected.links += len(rows)
        return len(rows)

    def _drop_blobs(self, connection: sqlite3.Connection) -> int:
        rows = connection.execute(_UNLINKED_BLOBS, (BATCH,)).fetchall()
        for digest, size, name in rows:
            # File first: after a crash here, the next run finds the row again; the reverse would leave a
            # stray file.
            self._blobs.remove(digests.parse(digest))
            self._objects += [name] if name else []
            self.collected.bytes += size
        connection.executemany("DELETE FROM blobs WHERE digest = ?", [row[:1] for row in rows])
        self.collected.blobs += len(rows)
        return len(rows)

    def _drop_objects(self, before: float) -> None:
        """Deletes objects of removed rows and old unreferenced ones, outside transactions because a bucket
        may be slow. The next listing finds what a failure leaves behind. Raises BucketFailed."""
        if self._bucket is None:
            return
        self._bucket.delete(self._objects)
        query = "SELECT 1 FROM blobs WHERE object = ?"
        for name, written in self._bucket.objects():
            if written < before and self._database.row(query, name) is None:
                self._bucket.delete([name])
                self.collected.objects += 1

    def _drop_uploads(self, before: float) -> None:
        known = {row[0]: row[1] for row in self._database.rows("SELECT id, touched FROM uploads")}
        for name, status in self._blobs.incoming_files():
            if max(status.st_mtime, known.get(name, 0.0)) < before:
                self._blobs.incoming_path(name).unlink(missing_ok=True)
                self.collected.uploads += 1
        self._database.write_here(
            lambda c: c.executemany(
                "DELETE FROM uploads WHERE id = ?", [(name,) for name in self._gone(known)]
            )
        )

    def _gone(self, uploads: dict[str, float]) -> Iterator[str]:
        return (name for name in uploads if not self._blobs.incoming_path(name).exists())

    def _drop_stray_files(self, before: float) -> None:
        """Removes blob files without a row, which a crash between publish and commit leaves behind."""
        for digest, status in self._blobs.files():
            query = "SELECT 1 FROM blobs WHERE digest = ?"
            if status.st_mtime < before and self._database.row(query, str(digest)) is None:
                self._database.write_here(partial(self._drop_stray, digest=digest))

    def _drop_stray(self, connection: sqlite3.Connection, *, digest: digests.Digest) -> None:
        if connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (str(digest),)).fetchone() is None:
            self._blobs.remove(digest)
            self.collected.blobs += 1


def collect(
    folder: Path,
    policy: Policy,
    *,
    pause_s: float = 0.005,
    now: float | None = None,
    bucket: Bucket | None = None,
) -> Collected:
    """Runs one collection of a registry's folder; a server may be running on it. Raises UnavailableError,
    BucketFailed."""
    database = Database(folder / "registry.db")
    try:
        require_bucket(database, bucket)
        blobs = BlobStore(folder)
        try:
            collector = Collector(blobs, database, policy, pause=lambda: time.sleep(pause_s), bucket=bucket)
            return collector.run(now)
        finally:
            blobs.close()
    finally:
        database.close()
