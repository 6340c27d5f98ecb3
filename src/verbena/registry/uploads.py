"""Uploads in progress: each has an `Upload` with its file and, while the process lives, its hash state. After
a restart, the next request continues the file and hashes it again from the beginning."""

from __future__ import annotations

import asyncio
import re
import time
import uuid

from verbena.registry import metadata
from verbena.registry.blobs import BlobStore
from verbena.registry.database import Database
from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob
from verbena.registry.metadata import Metadata, UploadRow

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAX_OPEN = 512
"""The number of open uploads above which idle ones are closed; they continue from their file."""


class Upload:
    """One upload. Requests that write to it must hold `busy`, or their bytes would mix."""

    def __init__(self, row: UploadRow, incoming: IncomingBlob) -> None:
        self.row = row
        self.incoming = incoming
        self.busy = asyncio.Lock()

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def received(self) -> int:
        return self.incoming.end


class Uploads:
    """The uploads of one registry, by id."""

    def __init__(self, blobs: BlobStore, database: Database) -> None:
        self._blobs = blobs
        self._database = database
        self._metadata = Metadata(database)
        self._open: dict[str, Upload] = {}

    async def begin(self, repository: str, algorithm: str) -> Upload:
        row = UploadRow(str(uuid.uuid4()), repository, algorithm)
        upload = self._open[row.id] = Upload(row, self._blobs.incoming(row.id, algorithm=algorithm))
        await self._database.write(lambda c: metadata.put_upload(c, row, time.time()), durable=False)
        self._close_idle()
        return upload

    def get(self, repository: str, upload: str) -> Upload:
        """Returns an upload. Raises Refused (BLOB_UPLOAD_UNKNOWN), also for an upload of another
        repository."""
        found = self._open.get(upload) or self._resume(upload)
        if found is None or found.row.repository != repository:
            raise Refused("BLOB_UPLOAD_UNKNOWN", detail={"upload": upload[:80]})
        self._open[upload] = self._open.pop(upload)  # keeps the dictionary in order of last use
        return found

    async def touch(self, upload: Upload) -> None:
        """Updates its time of last use, so that collection keeps it."""
        await self._database.write(lambda c: metadata.put_upload(c, upload.row, time.time()), durable=False)

    async def cancel(self, upload: Upload) -> None:
        upload.incoming.path.unlink(missing_ok=True)
        await self._database.write(lambda c: metadata.remove_upload(c, upload.id), durable=False)
        self.forget(upload)

    def forget(self, upload: Upload) -> None:
        """Closes an upload that is finished, cancelled or idle; its file is not deleted here."""
        self._open.pop(upload.id, None)
        upload.incoming.close()

    def close(self) -> None:
        for upload in self._open.values():
            upload.incoming.close()
        self._open.clear()

    def _resume(self, upload: str) -> Upload | None:
        if not _ID.fullmatch(upload):
            return None
        row = self._metadata.upload(upload)
        if row is None or not self._blobs.incoming_path(upload).exists():
            return None
        found = self._open[upload] = Upload(row, self._blobs.incoming(upload, algorithm=row.algorithm))
        return found

    def _close_idle(self) -> None:
        for upload in list(self._open.values())[: max(0, len(self._open) - MAX_OPEN)]:
            if not upload.busy.locked():
                self.forget(upload)
