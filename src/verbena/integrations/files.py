"""An fsspec file system: `verbena://host:port/path` is a file on a file server. pandas, Dask, Arrow and Zarr
open such URLs once fsspec is installed; accesses use a session on the best wire. A written file appears
atomically when it is closed."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import infer_storage_options

import verbena.sync
from verbena._forks import renew_in_child
from verbena.errors import BrokenLinkError, ClosedError
from verbena.integrations.file_messages import CALL, MAX_DATA_BYTES, pack, unpack
from verbena.transport import DEFAULT_PORT

_BLOCK_BYTES = 8 << 20


class FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of a server at host:port. `secret` and `wire` are passed to verbena.sync.connect().
    Raises the server's OSErrors, such as FileNotFoundError, and VerbenaError if it cannot be reached."""

    protocol = "verbena"
    root_marker = ""
    cachable = True

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        secret: str | bytes = b"",
        wire: str | None = None,
        **storage_options: Any,
    ) -> None:
        super().__init__(host=host, port=port, wire=wire, **storage_options)
        self.host, self.port = host, int(port)
        self._secret, self._wire = secret, wire
        self._begin()
        renew_in_child(self, FileSystem._begin)

    def _begin(self) -> None:
        """Begins without a session; that of a forked process stays with the parent."""
        self._session: verbena.sync.Session | None = None
        self._lock = threading.Lock()

    @property
    def session(self) -> verbena.sync.Session:
        """The session with the server; opened at first use, and again after it has ended or the process has
        forked."""
        with self._lock:
            session = self._session
            if session is None or session.closed:
                address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
                session = verbena.sync.connect(address, secret=self._secret, wire=self._wire)
                self._session = session
            return session

    def close(self) -> None:
        """Closes the session; the next use opens another one."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        for prefix in ("verbena://", "verbena::"):
            if path.startswith(prefix):
                path = path[len(prefix) :].partition("/")[2]  # removes host and port
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: Any) -> dict[str, Any]:
        found = infer_storage_options(os.fspath(path))
        return {name: found[name] for name in ("host", "port") if found.get(name)}

    def unstrip_protocol(self, name: str) -> str:
        return f"verbena://{self.host}:{self.port}/{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"verbena-{self.host}:{self.port}"

    # Reading

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return self._ask("info", path=self._strip_protocol(path))[0]["entry"]  # type: ignore[no-any-return]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entry = self.info(path)
        entries = [entry] if entry["type"] == "file" else self._ask("list", path=path)[0]["entries"]
        return entries if detail else [entry["name"] for entry in entries]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        begin = start or 0
        if begin < 0 or end is None or end < 0:
            size = self.info(path)["size"]
            begin = max(size + begin, 0) if begin < 0 else begin
            end = size if end is None else size + end if end < 0 else end
        parts = []
        while begin < end:
            part = self._ask("read", path=path, start=begin, length=min(end - begin, MAX_DATA_BYTES))[1]
            if not part:
                break
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    # Changing

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> BufferedFile:
        if "x" in mode and self.exists(path):  # an early check; commit() checks again atomically
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return BufferedFile(
            self,
            path,
            mode,
            _BLOCK_BYTES if block_size in (None, "default") else block_size,
            autocommit,
            cache_options=cache_options,
            **options,
        )

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self._ask("mkdir", path=self._strip_protocol(path), parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._ask("mkdir", path=self._strip_protocol(path), parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self._ask("rmdir", path=self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self._ask("remove", path=self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for each in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if self.isdir(each):
                self.rmdir(each)
            else:
                self.rm_file(each)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
        else:
            self._ask("copy", source=source, target=target)

    def mv_file(self, path1: str, path2: str, **options: Any) -> None:
        self._ask("move", source=self._strip_protocol(path1), target=self._strip_protocol(path2))

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        with self.open(path, "wb" if truncate or not self.exists(path) else "ab"):
            pass

    def _ask(
        self, do: str, data: bytes | memoryview = b"", **words: Any
    ) -> tuple[dict[str, Any], memoryview]:
        message = pack({"do": do, **words}, data)
        try:
            answer = self.session.sync.call(CALL, message)
        except (BrokenLinkError, ClosedError):
            self.close()  # the next request reconnects; no retry, as this one may have been executed
            raise
        found, rest = unpack(answer)
        if "errno" in found:
            raise OSError(found["errno"], found["message"], str(words.get("path", words.get("source", ""))))
        return found, rest


class BufferedFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file: reads blocks, or uploads them and commits the whole file when it is closed."""

    fs: FileSystem

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)

    def _initiate_upload(self) -> None:
        append = self.path if "a" in self.mode and self.fs.exists(self.path) else ""
        self._upload = self.fs._ask("begin", append_to=append)[0]["upload"]

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getbuffer()
        try:
            for start in range(0, len(data), MAX_DATA_BYTES):
                self.fs._ask("append", data[start : start + MAX_DATA_BYTES], upload=self._upload)
        finally:
            data.release()
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        self.fs._ask("commit", upload=self._upload, path=self.path, exclusive="x" in self.mode)

    def discard(self) -> None:
        self.fs._ask("discard", upload=self._upload)
