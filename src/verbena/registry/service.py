"""`Registry`: every operation of the OCI specification, without HTTP and without access control. A blob is
linked after its digest was verified and it is on disk; a manifest that a client pushes is stored after its
parts (unless sparse manifests are allowed). Changes are on disk when an operation returns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verbena._files import make_folder, private
from verbena.errors import setup_error
from verbena.registry import digests, manifests, metadata, names
from verbena.registry.blobs import BlobStore
from verbena.registry.bucket import Bucket, require_bucket
from verbena.registry.database import Database
from verbena.registry.digests import Digest
from verbena.registry.errors import BlobsUnknown, Refused
from verbena.registry.events import Event, Listener, Source
from verbena.registry.incoming import IncomingBlob
from verbena.registry.manifests import Manifest
from verbena.registry.metadata import Metadata
from verbena.registry.recall import Recall
from verbena.registry.uploads import Upload, Uploads

TOUCH_AFTER_S = 600.0
"""A blob's time of last use is updated at most this often."""


@dataclass(frozen=True)
class Limits:
    """Limits on what clients send."""

    blob_bytes: int = 1 << 40
    manifest_bytes: int = 4 << 20
    sparse_manifests: bool = False


@dataclass(frozen=True)
class Blob:
    """A blob of a repository: once its file is open, it stays readable even if the blob is deleted."""

    digest: Digest
    size: int
    path: Path
    object: str = ""
    """Its name in the bucket, or "". If set, the file may be missing, and `Registry.recall` fetches it."""


@dataclass(frozen=True)
class Pushed:
    """A stored manifest, as the response describes it."""

    digest: Digest
    subject: str | None
    tags: tuple[str, ...] = field(default=())


class Registry:
    """The registry of one folder; `close()` it. Raises UnavailableError if the folder or the bucket cannot be
    used, BusyError if another process serves the folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        bucket: Bucket | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self.folder = Path(folder)
        self.limits = limits or Limits()
        self.source: Source | None = None
        """Queried for content that is missing here."""
        self.listeners: list[Listener] = []
        """Awaited in turn with every event. One that raises fails the request, but the change stays
        stored."""
        try:
            make_folder(self.folder)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.blobs = BlobStore(self.folder)
            self.database = Database(self.folder / "registry.db")
        except BlockingIOError as error:
            os.close(self._lock)
            raise setup_error("registry_locked", operation="open", detail=str(self.folder)) from error
        except OSError as error:
            os.close(self._lock)
            raise _unusable(self.folder, error) from error
        except BaseException:
            os.close(self._lock)
            raise
        self.metadata = Metadata(self.database)
        self.uploads = Uploads(self.blobs, self.database)
        self.recall: Recall | None = None
        """The bucket behind the folder, if there is one."""
        try:
            self._open_bucket(bucket, cache_bytes)
        except BaseException:
            self.close()
            raise

    def _open_bucket(self, bucket: Bucket | None, cache_bytes: int) -> None:
        require_bucket(self.database, bucket)
        if bucket is None:
            return
        inside = self.metadata.objects()
        bucket.claim(_identity(self.folder / "registry-id"))
        self.recall = Recall(self.blobs, bucket, cache_bytes=cache_bytes)
        files = sorted((status.st_mtime, digest) for digest, status in self.blobs.files())
        for _, digest in files:
            if digest in inside:
                self.recall.used(digest, inside[digest])

    def close(self) -> None:
        self.blobs.close()
        self.uploads.close()
        self.database.close()
        os.close(self._lock)

    # Pull.

    async def manifest(self, repository: str, reference: str) -> Manifest:
        """Returns a manifest by tag or digest, from here or from the source. Raises Refused."""
        _check_name(repository)
        if digests.is_digest(reference):
            reference = str(parse_digest(reference))
        elif not names.is_tag(reference):
            raise Refused("MANIFEST_UNKNOWN", detail={"reference": reference[:200]})
        found = self.metadata.manifest(repository, reference)
        if self.source is not None and (found is None or self.source.is_stale(repository, reference)):
            found = await self.source.manifest(repository, reference) or found
        if found is None:
            raise self._unknown(repository, "MANIFEST_UNKNOWN", {"reference": reference})
        return found

    async def blob(self, repository: str, digest: Digest) -> Blob | IncomingBlob:
        """Returns a stored blob, or one that the source is fetching. Raises Refused."""
        found = await self.local_blob(repository, digest)
        if found is not None:
            return found
        arriving = await self.source.blob(repository, digest) if self.source is not None else None
        if arriving is None:
            raise self._unknown(repository, "BLOB_UNKNOWN", {"digest": str(digest)})
        return arriving

    async def local_blob(self, repository: str, digest: Digest) -> Blob | None:
        """Returns a stored blob, or None. The request counts as use, which protects the blob from collection
        for the grace period. Raises Refused (NAME_INVALID)."""
        _check_name(repository)
        found = self.metadata.blob(repository, digest)
        if found is None:
            return None
        size, touched, name = found
        now = time.time()
        if now - touched > TOUCH_AFTER_S:
            await self.database.write(
                lambda c: metadata.touch_link(c, repository, digest, now), durable=False
            )
        return Blob(digest, size, self.blobs.path_of(digest), name)

    # Push.

    async def begin_upload(self, repository: str, algorithm: str = digests.DEFAULT) -> Upload:
        _check_name(repository)
        if algorithm not in digests.ALGORITHMS:
            raise Refused("DIGEST_INVALID", f"unsupported algorithm {algorithm[:40]}")
        return await self.uploads.begin(repository, algorithm)

    async def finish_upload(self, upload: Upload, digest: Digest, *, actor: str = "") -> Blob:
        """Makes the upload a blob of its repository. Raises Refused (DIGEST_INVALID) if the digest differs;
        the upload then stays as it is."""
        found = await upload.incoming.digest(digest.algorithm)
        if found != digest:
            detail = {"expected": str(digest), "received": str(found)}
            raise Refused("DIGEST_INVALID", detail=detail)
        blob = await self._publish(upload.incoming, upload.row.repository, digest, upload.id)
        self.uploads.forget(upload)
        await self.notify(Event("push", "blob", upload.row.repository, digest, blob.size, actor=actor))
        return blob

    async def adopt(self, incoming: IncomingBlob, repository: str, digest: Digest) -> Blob:
        """Verifies and stores a blob that a source has fetched. Raises Refused (DIGEST_INVALID) if the bytes
        are wrong, after deleting them. Readers of `incoming` may continue; its creator closes it."""
        found = await incoming.digest(digest.algorithm)
        if found != digest or incoming.received != incoming.end:
            refused = Refused("DIGEST_INVALID", detail={"expected": str(digest), "received": str(found)})
            self.discard(incoming, refused)
            raise refused
        return await self._publish(incoming, repository, digest)

    async def link(self, repository: str, digest: Digest) -> Blob | None:
        """Links a stored blob to a repository that has it according to a source. None if the blob is not
        stored here."""
        size = self.metadata.stored(digest)
        if size is None:
            return None
        now = time.time()
        await self.database.write(lambda c: metadata.add_link(c, repository, digest, now))
        return Blob(digest, size, self.blobs.path_of(digest))

    def discard(self, incoming: IncomingBlob, reason: BaseException) -> None:
        """Abandons a source's fetch: truncates and deletes the file, so that its space is freed even while
        readers have it open, and fails the followers."""
        with contextlib.suppress(FileNotFoundError):
            os.truncate(incoming.path, 0)
        incoming.path.unlink(missing_ok=True)
        incoming.fail(reason)

    async def mount(
        self,
        repository: str,
        digest: Digest,
        *,
        origin: str | None,
        may_read: Callable[[str], bool] = lambda name: True,
        actor: str = "",
    ) -> Blob | None:
        """Links a blob of another repository: `origin`, or any that `may_read` allows. None if there is none;
        the client must then upload the blob."""
        _check_name(repository)
        now = time.time()
        for name in [origin] if origin is not None else self.metadata.holders(digest):
            if names.is_repository(name) and may_read(name):
                size = await self.database.write(
                    partial(_mount, repository=repository, origin=name, digest=digest, now=now)
                )
                if size is not None:
                    await self.notify(Event("mount", "blob", repository, digest, size, actor=actor))
                    return Blob(digest, size, self.blobs.path_of(digest))
        return None

    async def put_manifest(
        self,
        repository: str,
        reference: str,
        content: bytes,
        media_type: str,
        *,
        tags: Sequence[str] = (),
        actor: str = "",
    ) -> Pushed:
        """Stores a manifest and its tags in one transaction. Raises Refused."""
        _check_name(repository)
        if len(content) > self.limits.manifest_bytes:
            raise Refused(
                "SIZE_INVALID", f"a manifest has at most {self.limits.manifest_bytes} bytes", status=413
            )
        by_digest = digests.is_digest(reference)
        digest = parse_digest(reference) if by_digest else digests.of(content)
        wanted = tuple(dict.fromkeys(tags if by_digest else (reference, *tags)))
        for tag in wanted:
            if not names.is_tag(tag):
                raise Refused("MANIFEST_INVALID", f"invalid tag {tag[:140]!r}")
        if digests.of(content, digest.algorithm) != digest:
            raise Refused("DIGEST_INVALID", detail={"expected": str(digest)})
        parsed = manifests.parse(content, media_type)
        manifest = Manifest(digest, parsed.media_type, content)
        now = time.time()

        def store(connection: Any) -> None:
            missing = metadata.missing_parts(connection, repository, parsed)
            if missing and not self.limits.sparse_manifests:
                raise BlobsUnknown(missing)
            number = metadata.put_manifest(connection, repository, manifest, parsed, now)
            for tag in wanted:
                metadata.put_tag(connection, repository, tag, number, now)

        await self.database.write(store)
        for tag in wanted or ("",):
            await self.notify(
                Event(
                    *("push", "manifest", repository, digest, len(content), parsed.media_type),
                    tag=tag,
                    actor=actor,
                )
            )
        return Pushed(digest, parsed.subject, wanted)

    async def adopt_manifest(self, repository: str, manifest: Manifest, *, tag: str = "") -> None:
        """Stores a manifest that a source has fetched, even if its blobs are not here yet. Raises Refused."""
        _check_name(repository)
        if digests.of(manifest.content, manifest.digest.algorithm) != manifest.digest:
            raise Refused("DIGEST_INVALID", detail={"expected": str(manifest.digest)})
        parsed = manifests.parse(manifest.content, manifest.media_type)
        now = time.time()

        def store(connection: Any) -> None:
            number = metadata.put_manifest(connection, repository, manifest, parsed, now)
            if tag:
                metadata.put_tag(connection, repository, tag, number, now)

        await self.database.write(store)

    # Discovery.

    def tags(self, repository: str, *, after: str = "", limit: int = -1) -> list[str]:
        """The repository's tags in ASCII order. Raises Refused (NAME_UNKNOWN)."""
        _check_name(repository)
        found = self.metadata.tags(repository, after=after, limit=limit)
        if not found and not self.metadata.has_repository(repository):
            raise Refused("NAME_UNKNOWN", detail={"name": repository})
        return found

    def referrers(
        self, repository: str, subject: Digest, *, artifact_type: str | None, after: str = "", limit: int = -1
    ) -> list[dict[str, Any]]:
        """Descriptors of the referrers; an empty list for an unknown repository or subject."""
        _check_name(repository)
        return self.metadata.referrers(
            repository, subject, artifact_type=artifact_type, after=after, limit=limit
        )

    # Management.

    async def delete_manifest(self, repository: str, reference: str, *, actor: str = "") -> None:
        """Deletes a manifest with all its tags (by digest), or one tag. Raises Refused."""
        _check_name(repository)
        if digests.is_digest(reference):
            digest = parse_digest(reference)
            gone = await self.database.write(lambda c: metadata.remove_manifest(c, repository, digest))
            event = Event("delete", "manifest", repository, digest, actor=actor)
        else:
            gone = await self.database.write(lambda c: metadata.remove_tag(c, repository, reference))
            event = Event("delete", "tag", repository, tag=reference, actor=actor)
        if not gone:
            raise self._unknown(repository, "MANIFEST_UNKNOWN", {"reference": reference[:200]})
        await self.notify(event)

    async def delete_blob(self, repository: str, digest: Digest, *, actor: str = "") -> None:
        """Unlinks the blob from this repository; a later collection removes the file if no repository links
        it. Raises Refused."""
        _check_name(repository)
        if not await self.database.write(lambda c: metadata.remove_link(c, repository, digest)):
            raise self._unknown(repository, "BLOB_UNKNOWN", {"digest": str(digest)})
        await self.notify(Event("delete", "blob", repository, digest, actor=actor))

    async def _publish(
        self, incoming: IncomingBlob, repository: str, digest: Digest, upload: str = ""
    ) -> Blob:
        """Syncs, renames and links verified bytes, in this order, so that every linked blob is on disk. With
        a bucket, it also uploads the blob unless its object exists."""
        await incoming.sync()
        size, now = incoming.received, time.time()

        def store(connection: Any, name: str | None) -> bool:
            """Returns False if it stored nothing because the object is missing, or if `name` turned out not
            to be needed."""
            known = metadata.object_of(connection, digest)
            if self.recall is not None and not (known or name):
                return False
            # Publish within the transaction, because collection removes files within one too.
            self.blobs.publish(incoming, digest)
            metadata.add_blob(connection, digest, size, now, name=name)
            metadata.add_link(connection, repository, digest, now)
            if upload:
                metadata.remove_upload(connection, upload)
            return name in (None, known or name)

        if not await self.database.write(partial(store, name=None)):
            assert self.recall is not None
            name = await self.recall.put(incoming, digest)
            if not await self.database.write(partial(store, name=name)):
                await self.recall.forget(name)  # another push of the same blob was first
        if self.recall is not None:
            self.recall.used(digest, size)
        incoming.published()
        return Blob(digest, size, self.blobs.path_of(digest))

    async def notify(self, event: Event) -> None:
        for listener in self.listeners:
            await listener(event)

    def _unknown(self, repository: str, code: str, detail: dict[str, str]) -> Refused:
        if self.metadata.has_repository(repository):
            return Refused(code, detail=detail)
        return Refused("NAME_UNKNOWN", detail={"name": repository})


def parse_digest(text: str) -> Digest:
    """Parses a digest. Raises Refused (DIGEST_INVALID)."""
    try:
        return digests.parse(text)
    except digests.BadDigest as error:
        raise Refused("DIGEST_INVALID", f"invalid digest: {error}", detail={"digest": text[:300]}) from error


def _check_name(repository: str) -> None:
    if not names.is_repository(repository):
        raise Refused("NAME_INVALID", detail={"name": repository[:300]})


def _mount(connection: Any, *, repository: str, origin: str, digest: Digest, now: float) -> int | None:
    row = connection.execute(
        "SELECT size FROM links JOIN blobs USING (digest)"
        " WHERE repository = (SELECT id FROM repositories WHERE name = ?) AND digest = ?",
        (origin, str(digest)),
    ).fetchone()
    if row is None:
        return None
    metadata.add_link(connection, repository, digest, now)
    return int(row[0])


def _identity(file: Path) -> str:
    """Returns the registry's unique id; created once, and stored with its data."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(encoding="ascii").strip()
    identity = str(uuid.uuid4())
    made = file.with_suffix(".new")
    with open(made, "w", encoding="ascii", opener=private) as out:
        out.write(identity)
        out.flush()
        os.fsync(out.fileno())
    os.rename(made, file)
    return identity


def _unusable(folder: Path, error: OSError) -> Exception:
    return setup_error("registry_folder", operation="open", detail=str(folder), errno=error.errno)
