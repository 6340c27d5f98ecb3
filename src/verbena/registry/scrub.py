"""`verbena registry check`: reads all blobs and manifests and verifies their digests. Damaged blobs are
quarantined and unlinked, so that clients get 404 and push or fetch them again. May run beside a server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from verbena.registry import digests
from verbena.registry.blobs import BlobStore, hash_file
from verbena.registry.bucket import Bucket, ObjectMissing, require_bucket
from verbena.registry.database import Database
from verbena.registry.digests import Digest

_PAGE = 256
_READ = 8 << 20
# Blobs without a link are garbage, and an interrupted collection may already have removed the file.
_LINKED = """
SELECT digest, size, object FROM blobs WHERE digest > ? AND digest IN (SELECT digest FROM links)
ORDER BY 1 LIMIT ?
"""


@dataclass(frozen=True)
class Finding:
    """A problem, and what was done about it."""

    what: str
    where: str
    done: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f"; {self.done}" if self.done else "")


@dataclass
class Checked:
    blobs: int = 0
    bytes: int = 0
    manifests: int = 0
    findings: list[Finding] = field(default_factory=list)


def check(
    folder: Path,
    *,
    repair: bool = True,
    bucket: Bucket | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Checked:
    """Hashes every blob and manifest. With `repair`, moves damaged blobs to quarantine/ and deletes damaged
    manifests. Calls `progress` with the share of the bytes that is read.
    Raises BucketFailed if the bucket cannot be used, which is not damage."""
    database = Database(folder / "registry.db")
    try:
        require_bucket(database, bucket)
        blobs = BlobStore(folder)
        try:
            return _check(blobs, database, bucket, repair=repair, progress=progress)
        finally:
            blobs.close()
    finally:
        database.close()


def _check(
    blobs: BlobStore,
    database: Database,
    bucket: Bucket | None,
    *,
    repair: bool,
    progress: Callable[[float], None],
) -> Checked:
    result = Checked()
    (whole,) = database.row("SELECT coalesce(sum(size), 0) FROM blobs") or (0,)
    read = 0
    for (line,) in database.rows("PRAGMA integrity_check"):
        if line != "ok":
            result.findings.append(Finding(line, "registry.db", ""))
    for digest, size, name in _paged(database, _LINKED):
        result.blobs += 1
        progress(read / max(1, whole))
        read += size
        if name and bucket is not None:
            _check_object(blobs, database, bucket, result, (digests.parse(digest), size, name), repair=repair)
            continue
        what = _file_damage(blobs, digests.parse(digest), size)
        if not what:
            result.bytes += size
            continue
        done = database.write_here(partial(_quarantine, blobs=blobs, name=digest)) if repair else ""
        if done is None:
            continue  # collected, or pushed again, since it was read
        result.findings.append(Finding(what, digest, done))
    _check_manifests(database, result, repair=repair)
    return result


def _file_damage(blobs: BlobStore, digest: Digest, size: int) -> str:
    path = blobs.path_of(digest)
    try:
        if (length := path.stat().st_size) != size:
            return f"has {length} bytes instead of {size}"
        found = hash_file(path, digest.algorithm)
    except FileNotFoundError:
        return "file is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if found == digest else f"content has the digest {found}"


def _check_object(
    blobs: BlobStore,
    database: Database,
    bucket: Bucket,
    result: Checked,
    row: tuple[Digest, int, str],
    *,
    repair: bool,
) -> None:
    """Checks the object and the cached file, if there is one."""
    digest, size, name = row
    copy = _file_damage(blobs, digest, size) if blobs.path_of(digest).exists() else ""
    if copy:
        kept = blobs.quarantine(digest) if repair else None
        result.findings.append(
            Finding(f"cached copy: {copy}", str(digest), f"moved to {kept}" if kept else "")
        )
    what = _object_damage(bucket, digest, size, name)
    if not what:
        result.bytes += size
        return
    # Objects never change: if the row still names this one, it is still damaged.
    done = ""
    if repair:
        if not database.write_here(partial(_unlink_object, digest=str(digest), name=name)):
            return
        blobs.remove(digest)
        with contextlib.suppress(ObjectMissing):
            done = f"moved to {bucket.quarantine(name)}"
    result.findings.append(Finding(what, str(digest), done or ("forgotten" if repair else "")))


def _object_damage(bucket: Bucket, digest: Digest, size: int, name: str) -> str:
    state = digests.new_hash(digest.algorithm)
    try:
        if (length := bucket.size_of(name)) != size:
            return f"object has {length} bytes instead of {size}"
        for start in range(0, size, _READ):
            state.update(bucket.read(name, start, min(_READ, size - start)))
    except ObjectMissing:
        return "object is missing"
    found = state.hexdigest()
    return "" if found == digest.encoded else f"object has the digest {digest.algorithm}:{found}"


def _unlink_object(connection: sqlite3.Connection, *, digest: str, name: str) -> bool:
    row = connection.execute("SELECT object FROM blobs WHERE digest = ?", (digest,)).fetchone()
    if row is None or row[0] != name:
        return False  # collected, or pushed again, since it was read
    connection.execute("DELETE FROM links WHERE digest = ?", (digest,))
    connection.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
    return True


def _quarantine(connection: sqlite3.Connection, *, blobs: BlobStore, name: str) -> str | None:
    """Checks the file again within the transaction, then quarantines and unlinks it; None if it is no longer
    damaged."""
    digest = digests.parse(name)
    row = connection.execute("SELECT size FROM blobs WHERE digest = ?", (name,)).fetchone()
    if row is None or not _file_damage(blobs, digest, row[0]):
        return None
    kept = blobs.quarantine(digest)
    connection.execute("DELETE FROM links WHERE digest = ?", (name,))
    connection.execute("DELETE FROM blobs WHERE digest = ?", (name,))
    return f"moved to {kept}" if kept else "forgotten"


def _check_manifests(database: Database, result: Checked, *, repair: bool) -> None:
    last = 0
    while rows := database.rows(
        "SELECT id, digest, content FROM manifests WHERE id > ? ORDER BY id LIMIT ?", last, _PAGE
    ):
        for number, name, content in rows:
            result.manifests += 1
            if str(digests.of(content, digests.parse(name).algorithm)) != name:
                if repair:
                    database.write_here(partial(_remove_manifest, number=number, content=content))
                result.findings.append(
                    Finding("the content does not match the digest", name, "removed" if repair else "")
                )
        last = rows[-1][0]


def _remove_manifest(connection: sqlite3.Connection, *, number: int, content: bytes) -> None:
    connection.execute("DELETE FROM manifests WHERE id = ? AND content = ?", (number, content))


def _paged(database: Database, query: str) -> Iterator[tuple[str, int, str | None]]:
    last = ""
    while rows := database.rows(query, last, _PAGE):
        yield from ((digest, size, name) for digest, size, name in rows)
        last = rows[-1][0]
