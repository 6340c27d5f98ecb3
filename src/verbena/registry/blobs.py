"""The blob files, named by their digests and shared by all repositories. A file gets its name only in
`publish()`, after its digest was verified and its bytes were synced. Unless a blob is also in a bucket,
callers publish and remove its file within a write transaction of the database, which serializes them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verbena._files import make_folder
from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob

WORKERS = 8


class BlobStore:
    """Blob files in `folder`, with the subfolders `blobs/`, `incoming/` and `quarantine/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("blobs", "incoming", "quarantine"):
            make_folder(folder / name)
        self.workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="registry-blob")

    def path_of(self, digest: Digest) -> Path:
        return self.folder / "blobs" / digest.algorithm / digest.encoded[:2] / digest.encoded

    def incoming_path(self, name: str) -> Path:
        return self.folder / "incoming" / name

    def incoming(
        self, name: str = "", *, algorithm: str = digests.DEFAULT, size: int | None = None
    ) -> IncomingBlob:
        """Opens a file in `incoming/` to receive a blob. With the name of an existing file, it continues that
        one."""
        path = self.incoming_path(name or str(uuid.uuid4()))
        return IncomingBlob(path, workers=self.workers, algorithm=algorithm, size=size)

    def publish(self, incoming: IncomingBlob, digest: Digest) -> None:
        """Renames verified and synced bytes to their digest. When it returns, the directory entry is on disk
        too."""
        path = self.path_of(digest)
        if not path.parent.is_dir():
            make_folder(path.parent)
            _sync_folder(path.parent.parent)
            _sync_folder(self.folder / "blobs")
        os.rename(incoming.path, path)
        _sync_folder(path.parent)

    def remove(self, digest: Digest) -> None:
        """Unlinks the file; its space is freed when the last reader closes it. No error if it does not
        exist."""
        self.path_of(digest).unlink(missing_ok=True)

    def quarantine(self, digest: Digest) -> Path | None:
        """Moves a damaged file to `quarantine/`, from which nothing is served. Returns its new path, or None
        if the file does not exist."""
        kept = self.folder / "quarantine" / f"{digest.algorithm}-{digest.encoded}-{time.time_ns()}"
        try:
            os.rename(self.path_of(digest), kept)
        except FileNotFoundError:
            return None
        return kept

    def files(self) -> Iterator[tuple[Digest, os.stat_result]]:
        """Yields every blob file on disk, with or without a row in the database."""
        for algorithm in digests.ALGORITHMS:
            for folder in _entries(self.folder / "blobs" / algorithm):
                for entry in _entries(Path(folder.path)):
                    try:
                        yield digests.parse(f"{algorithm}:{entry.name}"), entry.stat()
                    except (digests.BadDigest, FileNotFoundError):
                        continue  # a foreign file, or removed since the scan

    def incoming_files(self) -> Iterator[tuple[str, os.stat_result]]:
        for entry in _entries(self.folder / "incoming"):
            try:
                yield entry.name, entry.stat()
            except FileNotFoundError:
                continue

    def close(self) -> None:
        self.workers.shutdown()


def hash_file(path: Path, algorithm: str) -> Digest:
    """Computes the digest of a file in reads of 1 MiB. Raises OSError."""
    state = digests.new_hash(algorithm)
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(buffer):
            state.update(view[:length])
    return Digest(algorithm, state.hexdigest())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
