"""Exports a folder to sessions: `verbena file-node` runs it, and programs can use its handlers. Paths cannot
leave the folder, not even through symbolic links; writing must be enabled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verbena.integrations.file_messages import CALL, MAX_DATA_BYTES, pack, unpack
from verbena.transport import Handler, Request, Session

UPLOADS = ".verbena-uploads"  # in the same file system, so that the final rename is atomic
_READ_ONLY = "the folder is exported read-only"

Answer = tuple[dict[str, Any], bytes]


class FileServer:
    """Serves `root`. Pass `handlers` to verbena.listen(); close() deletes unfinished uploads."""

    def __init__(self, root: str | os.PathLike[str], *, writable: bool = False) -> None:
        self.root = Path(root).resolve(strict=True)
        if not self.root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(root))
        self.writable = writable
        self._uploads: dict[str, tuple[int, Path]] = {}  # name → (session id, path)
        self._lock = threading.Lock()
        self._watchers: dict[int, asyncio.Task[None]] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {CALL: self._handle}

    def close(self) -> None:
        with self._lock:
            uploads, self._uploads = self._uploads, {}
        for _, path in uploads.values():
            path.unlink(missing_ok=True)
        if self.writable:
            with contextlib.suppress(OSError):  # it does not exist, or another server uses it
                (self.root / UPLOADS).rmdir()

    async def _handle(self, request: Request) -> bytes:
        try:
            words, data = unpack(request.payload)
            wanted = _METHODS.get(str(words.pop("do", "")))
            if wanted is None:
                raise OSError(errno.ENOSYS, "unknown request")
            self._watch(request.session)
            answer, found = await asyncio.to_thread(wanted, self, request.session.id, data, **words)
        except OSError as error:
            return pack({"errno": error.errno or errno.EIO, "message": error.strerror or str(error)})
        except (TypeError, ValueError) as error:
            return pack({"errno": errno.EINVAL, "message": str(error)})
        return pack(answer, found)

    def _watch(self, session: Session) -> None:
        """Deletes a session's unfinished uploads when the session ends."""
        if self.writable and session.id not in self._watchers:
            self._watchers[session.id] = asyncio.ensure_future(self._wait_end(session))

    async def _wait_end(self, session: Session) -> None:
        try:
            async for _ in session.states():
                pass
        finally:
            del self._watchers[session.id]
            with self._lock:
                names = [name for name, (owner, _) in self._uploads.items() if owner == session.id]
                paths = [self._uploads.pop(name)[1] for name in names]
            for path in paths:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """Resolves a path. Raises PermissionError if it is outside the folder or in the uploads folder."""
        path = (self.root / name.strip("/")).resolve()
        inside = path == self.root or self.root in path.parents
        if not inside or UPLOADS in path.relative_to(self.root).parts:
            raise PermissionError(errno.EACCES, "the path is outside the exported folder")
        return path

    def _place(self, name: str) -> Path:
        """Resolves a path that will be changed. Raises PermissionError also if the folder is read-only or is
        the path."""
        self._check_writable()
        path = self._path(name)
        if path == self.root:
            raise PermissionError(errno.EACCES, "the exported folder itself cannot be replaced")
        return path

    def _check_writable(self) -> None:
        if not self.writable:
            raise PermissionError(errno.EROFS, _READ_ONLY)

    def _info(self, session: int, data: memoryview, *, path: str) -> Answer:
        return {"entry": _entry(self.root, self._path(path))}, b""

    def _list(self, session: int, data: memoryview, *, path: str) -> Answer:
        folder = self._path(path)
        entries = []
        for child in sorted(folder.iterdir()):
            if child.name == UPLOADS:
                continue
            try:
                entries.append(_entry(self.root, child))
            except OSError:
                continue  # deleted since, or a dangling link
        return {"entries": entries}, b""

    def _read(self, session: int, data: memoryview, *, path: str, start: int, length: int) -> Answer:
        if start < 0 or not 0 <= length <= MAX_DATA_BYTES:
            raise OSError(errno.EINVAL, f"{length} bytes at {start} cannot be read at once")
        with open(self._path(path), "rb", buffering=0) as file:
            file.seek(start)
            found = bytearray(length)
            view, filled = memoryview(found), 0
            while filled < length and (count := file.readinto(view[filled:])):
                filled += count
        return {}, bytes(view[:filled]) if filled < length else found  # type: ignore[return-value]

    def _begin(self, session: int, data: memoryview, *, append_to: str = "") -> Answer:
        self._check_writable()
        (self.root / UPLOADS).mkdir(mode=0o700, exist_ok=True)
        name = os.urandom(12).hex()
        path = self.root / UPLOADS / name
        if append_to:
            shutil.copyfile(self._path(append_to), path)
        else:
            path.touch(exist_ok=False)
        with self._lock:
            self._uploads[name] = (session, path)
        return {"upload": name}, b""

    def _append(self, session: int, data: memoryview, *, upload: str) -> Answer:
        with open(self._upload(session, upload), "ab", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
        return {}, b""

    def _commit(
        self, session: int, data: memoryview, *, upload: str, path: str, exclusive: bool = False
    ) -> Answer:
        source, target = self._upload(session, upload), self._place(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        if exclusive:
            os.link(source, target)  # atomic, and fails if the target exists
            source.unlink()
        else:
            source.replace(target)
        with self._lock:
            self._uploads.pop(upload, None)
        return {"entry": _entry(self.root, target)}, b""

    def _discard(self, session: int, data: memoryview, *, upload: str) -> Answer:
        path = self._upload(session, upload)
        with self._lock:
            self._uploads.pop(upload, None)
        path.unlink(missing_ok=True)
        return {}, b""

    def _upload(self, session: int, upload: str) -> Path:
        self._check_writable()
        with self._lock:
            owner, path = self._uploads.get(upload, (0, self.root))
        if owner != session:
            raise FileNotFoundError(errno.ENOENT, "there is no such upload")
        return path

    def _mkdir(self, session: int, data: memoryview, *, path: str, parents: bool, exist_ok: bool) -> Answer:
        self._check_writable()
        self._path(path).mkdir(parents=parents, exist_ok=exist_ok)
        return {}, b""

    def _remove(self, session: int, data: memoryview, *, path: str) -> Answer:
        self._place(path).unlink()
        return {}, b""

    def _rmdir(self, session: int, data: memoryview, *, path: str) -> Answer:
        self._place(path).rmdir()
        return {}, b""

    def _copy(self, session: int, data: memoryview, *, source: str, target: str) -> Answer:
        start, end = self._path(source), self._place(target)
        end.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(start, end)
        return {}, b""

    def _move(self, session: int, data: memoryview, *, source: str, target: str) -> Answer:
        start, end = self._place(source), self._place(target)
        end.parent.mkdir(parents=True, exist_ok=True)
        start.replace(end)
        return {}, b""


def _entry(root: Path, path: Path) -> dict[str, Any]:
    found = path.stat()  # follows links, as reading does
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    name = "" if path == root else path.relative_to(root).as_posix()
    size = 0 if kind == "directory" else found.st_size
    return {"name": name, "size": size, "type": kind, "mtime": found.st_mtime, "ino": found.st_ino}


_METHODS: Mapping[str, Callable[..., Answer]] = {
    "info": FileServer._info,
    "list": FileServer._list,
    "read": FileServer._read,
    "begin": FileServer._begin,
    "append": FileServer._append,
    "commit": FileServer._commit,
    "discard": FileServer._discard,
    "mkdir": FileServer._mkdir,
    "remove": FileServer._remove,
    "rmdir": FileServer._rmdir,
    "copy": FileServer._copy,
    "move": FileServer._move,
}
