"""Queries and updates of the database: repositories, links, manifests, tags, referrers, uploads. Functions
that take a connection run within a write transaction; methods of `Metadata` only read."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from verbena.registry import digests
from verbena.registry.database import Database
from verbena.registry.digests import Digest
from verbena.registry.manifests import Manifest, Parsed

_REPOSITORY = "(SELECT id FROM repositories WHERE name = ?)"


@dataclass(frozen=True)
class UploadRow:
    id: str
    repository: str
    algorithm: str


class Metadata:
    """Read access. Each call sees one consistent state; the next call may see a later one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_repository(self, name: str) -> bool:
        return self._database.row("SELECT 1 FROM repositories WHERE name = ?", name) is not None

    def repositories(self, *, after: str = "", limit: int = -1) -> list[str]:
        query = "SELECT name FROM repositories WHERE name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._database.rows(query, after, limit)]

    def blob(self, repository: str, digest: Digest) -> tuple[int, float, str] | None:
        """Returns size, time of last use and object name of a repository's blob; the name is "" for a blob
        that is only a file. None if the repository does not have it."""
        row = self._database.row(
            "SELECT size, touched, object FROM links JOIN blobs USING (digest)"
            f" WHERE repository = {_REPOSITORY} AND digest = ?",
            *(repository, str(digest)),
        )
        return (row[0], row[1], row[2] or "") if row else None

    def stored(self, digest: Digest) -> int | None:
        """Returns the size of a blob that at least one repository has, or None."""
        row = self._database.row(
            "SELECT size FROM blobs WHERE digest = ? AND EXISTS"
            " (SELECT 1 FROM links WHERE links.digest = blobs.digest)",
            str(digest),
        )
        return row[0] if row else None

    def objects(self) -> dict[Digest, int]:
        """The blobs that are in the bucket, with their sizes."""
        rows = self._database.rows("SELECT digest, size FROM blobs WHERE object IS NOT NULL")
        return {digests.parse(digest): size for digest, size in rows}

    def holders(self, digest: Digest) -> list[str]:
        """The repositories that have a blob."""
        query = "SELECT name FROM links JOIN repositories ON id = repository WHERE digest = ? ORDER BY name"
        return [name for (name,) in self._database.rows(query, str(digest))]

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Returns a manifest by tag or digest, or None."""
        if digests.is_digest(reference):
            where = f"repository = {_REPOSITORY} AND digest = ?"
        else:
            where = f"id = (SELECT manifest FROM tags WHERE repository = {_REPOSITORY} AND name = ?)"
        row = self._database.row(
            f"SELECT digest, media_type, content FROM manifests WHERE {where}", repository, reference
        )
        return Manifest(digests.parse(row[0]), row[1], row[2]) if row else None

    def tags(self, repository: str, *, after: str = "", limit: int = -1) -> list[str]:
        query = f"SELECT name FROM tags WHERE repository = {_REPOSITORY} AND name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._database.rows(query, repository, after, limit)]

    def referrers(
        self, repository: str, subject: Digest, *, artifact_type: str | None, after: str = "", limit: int = -1
    ) -> list[dict[str, Any]]:
        """Descriptors of the manifests with this subject, sorted by digest."""
        rows = self._database.rows(
            "SELECT digest, media_type, length(content), artifact_type, annotations FROM manifests"
            f" WHERE repository = {_REPOSITORY} AND subject = ? AND digest > ?"
            " AND (?4 IS NULL OR artifact_type = ?4) ORDER BY digest LIMIT ?5",
            *(repository, str(subject), after, artifact_type, limit),
        )
        return [_descriptor(*row) for row in rows]

    def upload(self, upload: str) -> UploadRow | None:
        row = self._database.row("SELECT id, repository, algorithm FROM uploads WHERE id = ?", upload)
        return UploadRow(*row) if row else None

    def totals(self) -> dict[str, int]:
        """The numbers of stored entries of each kind, for metrics."""
        row = self._database.row(
            "SELECT (SELECT count(*) FROM repositories), (SELECT count(*) FROM blobs),"
            " (SELECT coalesce(sum(size), 0) FROM blobs), (SELECT count(*) FROM manifests),"
            " (SELECT count(*) FROM tags), (SELECT count(*) FROM uploads)"
        )
        assert row is not None
        return dict(
            zip(("repositories", "blobs", "blob_bytes", "manifests", "tags", "uploads"), row, strict=True)
        )


def _descriptor(
    digest: str, media_type: str, size: int, artifact_type: str | None, annotations: str | None
) -> dict[str, Any]:
    descriptor: dict[str, Any] = {"mediaType": media_type, "size": size, "digest": digest}
    if artifact_type:
        descriptor["artifactType"] = artifact_type
    if annotations:
        descriptor["annotations"] = json.loads(annotations)
    return descriptor


# Updates, within a transaction.


def repository_id(connection: sqlite3.Connection, name: str, now: float) -> int:
    """Returns the repository's id; creates the repository if it does not exist."""
    row = connection.execute("SELECT id FROM repositories WHERE name = ?", (name,)).fetchone()
    if row is None:
        row = connection.execute(
            "INSERT INTO repositories (name, created) VALUES (?, ?) RETURNING id", (name, now)
        ).fetchone()
    return int(row[0])


def add_blob(
    connection: sqlite3.Connection, digest: Digest, size: int, now: float, *, name: str | None = None
) -> None:
    """Adds or updates a blob. `name` is its object in the bucket; an existing object name is kept."""
    connection.execute(
        "INSERT INTO blobs VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " size = excluded.size, object = coalesce(object, excluded.object)",
        (str(digest), size, now, name),
    )


def object_of(connection: sqlite3.Connection, digest: Digest) -> str:
    """Returns the name of a blob's object, or "" if it has none."""
    row = connection.execute("SELECT object FROM blobs WHERE digest = ?", (str(digest),)).fetchone()
    return (row[0] or "") if row else ""


def add_link(connection: sqlite3.Connection, repository: str, digest: Digest, now: float) -> None:
    connection.execute(
        "INSERT INTO links VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET touched = excluded.touched",
        (repository_id(connection, repository, now), str(digest), now),
    )


def touch_link(connection: sqlite3.Connection, repository: str, digest: Digest, now: float) -> None:
    connection.execute(
        f"UPDATE links SET touched = ? WHERE repository = {_REPOSITORY} AND digest = ?",
        (now, repository, str(digest)),
    )


def remove_link(connection: sqlite3.Connection, repository: str, digest: Digest) -> bool:
    """Returns whether the repository had the blob."""
    found = connection.execute(
        f"DELETE FROM links WHERE repository = {_REPOSITORY} AND digest = ?", (repository, str(digest))
    )
    return found.rowcount > 0


def missing_parts(connection: sqlite3.Connection, repository: str, parsed: Parsed) -> list[str]:
    """Returns the digests that a manifest refers to and the repository does not have."""
    missing = []
    for table, wanted in (("links", parsed.blobs), ("manifests", parsed.manifests)):
        query = f"SELECT 1 FROM {table} WHERE repository = {_REPOSITORY} AND digest = ?"
        for digest in dict.fromkeys(wanted):
            if connection.execute(query, (repository, digest)).fetchone() is None:
                missing.append(digest)
    return missing


def put_manifest(
    connection: sqlite3.Connection, repository: str, manifest: Manifest, parsed: Parsed, now: float
) -> int:
    """Stores or refreshes a manifest; returns its id."""
    owner = repository_id(connection, repository, now)
    annotations = json.dumps(parsed.annotations) if parsed.annotations else None
    row = connection.execute(
        "INSERT INTO manifests"
        " (repository, digest, media_type, subject, artifact_type, annotations, touched, content)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (repository, digest) DO UPDATE SET"
        " media_type = excluded.media_type, touched = excluded.touched RETURNING id",
        (
            *(owner, str(manifest.digest), manifest.media_type, parsed.subject),
            *(parsed.artifact_type, annotations, now, manifest.content),
        ),
    ).fetchone()
    number = int(row[0])
    connection.executemany(
        "INSERT OR IGNORE INTO parts VALUES (?, ?, ?)",
        [(owner, digest, number) for digest in (*parsed.blobs, *parsed.manifests)],
    )
    return number


def put_tag(connection: sqlite3.Connection, repository: str, tag: str, manifest: int, now: float) -> None:
    connection.execute(
        "INSERT INTO tags VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " manifest = excluded.manifest, touched = excluded.touched",
        (repository_id(connection, repository, now), tag, manifest, now),
    )


def remove_tag(connection: sqlite3.Connection, repository: str, tag: str) -> bool:
    found = connection.execute(
        f"DELETE FROM tags WHERE repository = {_REPOSITORY} AND name = ?", (repository, tag)
    )
    return found.rowcount > 0


def remove_manifest(connection: sqlite3.Connection, repository: str, digest: Digest) -> bool:
    """Removes a manifest and its tags; returns whether it existed."""
    found = connection.execute(
        f"DELETE FROM manifests WHERE repository = {_REPOSITORY} AND digest = ?", (repository, str(digest))
    )
    return found.rowcount > 0


def put_upload(connection: sqlite3.Connection, row: UploadRow, now: float) -> None:
    connection.execute(
        "INSERT INTO uploads VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET touched = excluded.touched",
        (row.id, row.repository, row.algorithm, now),
    )


def remove_upload(connection: sqlite3.Connection, upload: str) -> None:
    connection.execute("DELETE FROM uploads WHERE id = ?", (upload,))
