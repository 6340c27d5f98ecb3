"""A store's directory: which files are current, whether they are complete, and a lock for one server.

    lock                          held by the server, or by a repair
    manifest.json                 the current snapshot, and the LSN at which it was begun
    snapshot-<LSN>.vsnap          all keys as of that LSN
    log-<first LSN>.vlog          the changes since then, in consecutive segments
    reserve                       space for the next start, should the disk be full by then

A file is replaced by writing a new one in the same directory, syncing it, renaming it and syncing the
directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from verbena import _native
from verbena._closing import Closing
from verbena._files import make_folder, private
from verbena.errors import VerbenaError, setup_error

MANIFEST = "manifest.json"
FORMAT = 1
RESERVE = "reserve"
RESERVE_BYTES = 64 << 10  # for a manifest and the header of a segment, in whole blocks
_Result = TypeVar("_Result")
_SEGMENT = re.compile(r"log-(\d{20})\.vlog")
_SNAPSHOT = re.compile(r"snapshot-(\d{20})\.vsnap")


@dataclass(frozen=True)
class Manifest:
    """The current files. `closed_lsn`: the last LSN after a clean shutdown; 0: the server runs, or
    crashed."""

    snapshot: str = ""
    first_lsn: int = 1  # of the log records after the snapshot
    epoch: int = 1
    segments: tuple[int, ...] = ()  # first LSNs of segments that must exist
    closed_lsn: int = 0


@dataclass(frozen=True)
class File:
    """A file with the report of examine()."""

    path: Path
    report: dict[str, Any]


@dataclass(frozen=True)
class Damage:
    """The first damage in the files. `torn`: an interrupted write explains it, and no durable record is
    lost."""

    path: Path
    offset: int
    lsn: int
    what: str
    torn: bool
    cut_at: int = 0  # bytes of the file that are valid; 0: none
    records_behind: int = 0

    def __str__(self) -> str:
        return f"{self.path.name} at byte {self.offset}, where LSN {self.lsn} is expected: {self.what}"


@dataclass
class Inventory:
    """The content of a directory, as verify() finds it."""

    manifest: Manifest
    snapshot: File | None = None
    segments: list[File] = field(default_factory=list)
    stale: list[Path] = field(default_factory=list)  # files that can be removed
    damage: Damage | None = None
    next_lsn: int = 1

    @property
    def records(self) -> int:
        files = [*self.segments, *([self.snapshot] if self.snapshot else [])]
        return sum(file.report["records"] for file in files)


class Disk(Closing):
    """A locked directory, created if needed. StateError: another server holds the lock."""

    def __init__(self, directory: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = Path(directory)
        self._lock: int | None = None
        try:
            if create:
                make_folder(self.path)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise failed("open the store's directory", error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            self.close()
            raise setup_error(
                "log_locked", operation="open the store's directory", detail=f"{self.path}, process {holder}"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # The manifest

    def read_manifest(self) -> Manifest | None:
        """Returns the manifest, or None if there is none. StateError: it is damaged, or its version is
        unknown."""
        try:
            text = (self.path / MANIFEST).read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise corrupt(f"{MANIFEST} cannot be read: {error}") from error
        try:
            fields = json.loads(text)
            version, checksum = fields.pop("format"), fields.pop("checksum")
        except (ValueError, KeyError, AttributeError) as error:
            raise corrupt(f"{MANIFEST} is not what a store wrote: {error}") from error
        if version != FORMAT:
            raise corrupt(f"{MANIFEST} is of format {version}, and only {FORMAT} is known here")
        if checksum != _checksum(fields):
            raise corrupt(f"{MANIFEST} has the checksum {checksum} instead of {_checksum(fields)}")
        return Manifest(**{**fields, "segments": tuple(fields["segments"])})

    def write_manifest(self, manifest: Manifest) -> None:
        fields = {**manifest.__dict__, "segments": list(manifest.segments)}
        text = json.dumps({"format": FORMAT, **fields, "checksum": _checksum(fields)}, indent=1)
        self.replace(MANIFEST, text.encode() + b"\n")

    def replace(self, name: str, contents: bytes) -> None:
        """Replaces a file so that a crash leaves the old one or the new one. On a full disk it uses the
        reserve."""
        temporary = self.path / f"{name}.tmp"
        self.with_reserve(lambda: _write(temporary, contents))
        os.rename(temporary, self.path / name)
        self.sync()

    # The reserve

    def with_reserve(self, write: Callable[[], _Result]) -> _Result:
        """Runs `write`; if the disk is full, frees the reserve and runs it once more."""
        try:
            return write()
        except (OSError, VerbenaError) as error:
            reserve = self.path / RESERVE
            if error.errno != errno.ENOSPC or not reserve.exists():
                raise
            reserve.unlink()
            return write()

    def fill_reserve(self) -> None:
        """Allocates the reserve unless it exists or the disk is full."""
        reserve = self.path / RESERVE
        if reserve.exists():
            return
        try:
            with open(reserve, "xb", opener=private) as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:
            with contextlib.suppress(OSError):
                reserve.unlink()

    def sync(self) -> None:
        """Syncs the directory."""
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    # The files

    def snapshot_path(self, first_lsn: int) -> Path:
        return self.path / f"snapshot-{first_lsn - 1:020}.vsnap"

    def segment_files(self) -> list[tuple[int, Path]]:
        """Returns segments by their first LSN."""
        return sorted(
            (int(m[1]), path) for path in self.path.iterdir() if (m := _SEGMENT.fullmatch(path.name))
        )

    def verify(self) -> Inventory:
        """Reads every record of the current files. Changes nothing."""
        manifest = self.read_manifest()
        segments = self.segment_files()
        snapshots = [path for path in self.path.iterdir() if _SNAPSHOT.fullmatch(path.name)]
        if manifest is None:
            if segments or snapshots:
                names = ", ".join(sorted(path.name for path in (*snapshots, *(path for _, path in segments))))
                raise corrupt(f"{MANIFEST} is missing, but there are {names}")
            manifest = Manifest()
        found = Inventory(manifest, next_lsn=manifest.first_lsn)
        found.stale = [path for path in snapshots if path.name != manifest.snapshot]
        found.stale += [path for first, path in segments if first < manifest.first_lsn]
        found.stale += list(self.path.glob("*.tmp"))
        if manifest.snapshot:
            self._verify_snapshot(found)
        current = [(first, path) for first, path in segments if first >= manifest.first_lsn]
        if found.damage is None:
            self._verify_segments(found, current)
        return found

    def _verify_snapshot(self, found: Inventory) -> None:
        path = self.path / found.manifest.snapshot
        if not path.exists():
            found.damage = Damage(path, 0, found.manifest.first_lsn, "the snapshot is missing", False)
            return
        report = _native.kv.examine(str(path), snapshot=True)
        found.snapshot = File(path, report)
        fault = report["fault"]
        if not fault and report["first_lsn"] != found.manifest.first_lsn:
            fault = f"it was begun before LSN {report['first_lsn']} instead of {found.manifest.first_lsn}"
        if fault:
            found.damage = Damage(
                path, report["fault_offset"], report["fault_lsn"], fault, False,
                report["whole_bytes"], report["records_behind"],
            )  # fmt: skip

    def _verify_segments(self, found: Inventory, current: list[tuple[int, Path]]) -> None:
        there = {first for first, _ in current}
        reports = [(first, File(path, _native.kv.examine(str(path)))) for first, path in current]
        for index, (first, file) in enumerate(reports):
            behind = [later.report for _, later in reports[index + 1 :]]
            damage = self._segment_damage(found, first, file, behind)
            if file.report["readable"] and first == found.next_lsn:
                found.segments.append(file)
                found.next_lsn = file.report["next_lsn"]
            if damage is not None:
                found.damage = damage
                return
        missing = [
            first for first in found.manifest.segments if first not in there and first >= found.next_lsn
        ]
        lost = found.manifest.closed_lsn >= found.next_lsn
        if missing or lost:
            what = (
                f"the segment that begins with LSN {missing[0]} is missing"
                if missing
                else f"it ends, but the server had written up to LSN {found.manifest.closed_lsn}"
            )
            path = found.segments[-1].path if found.segments else self.path / MANIFEST
            size = found.segments[-1].report["whole_bytes"] if found.segments else 0
            found.damage = Damage(path, size, found.next_lsn, what, False, size)

    def _segment_damage(
        self, found: Inventory, first: int, file: File, behind: list[dict[str, Any]]
    ) -> Damage | None:
        report, path, expected = file.report, file.path, found.next_lsn
        records_behind = report["records_behind"] + sum(later["records"] for later in behind)
        if not report["readable"]:
            # Created just before a crash, and still empty.
            with open(path, "rb") as opened:
                empty = report["file_bytes"] < 64 or not opened.read(64).strip(b"\0")
            torn = empty and not behind and found.manifest.closed_lsn < expected
            return Damage(path, 0, expected, report["fault"], torn, 0, records_behind)
        if first != expected or report["first_lsn"] != first:
            what = f"the segment begins with LSN {report['first_lsn']}"
            return Damage(path, 0, expected, what, False, 0, records_behind + report["records"])
        if not report["fault"]:
            return None
        # A crash cannot have lost a record that the log itself reports as durable.
        known = max([report["durable_behind"], *(max(r["durable_lsn"], r["durable_behind"]) for r in behind)])
        torn = max(known, report["durable_lsn"], found.manifest.closed_lsn) < report["next_lsn"]
        return Damage(
            path, report["fault_offset"], report["fault_lsn"], report["fault"], torn,
            report["whole_bytes"], records_behind,
        )  # fmt: skip

    def cut(self, found: Inventory, *, keep: bool = True) -> list[Path]:
        """Removes the damaged part and all after it. With `keep` the removed bytes are kept in files beside,
        whose paths are returned."""
        damage = found.damage
        assert damage is not None
        kept: list[Path] = []
        if damage.path.exists() and damage.path.suffix == ".vlog":
            backup = damage.path.with_name(f"{damage.path.name}.cut-{damage.cut_at}")
            with open(damage.path, "r+b") as file:
                file.seek(damage.cut_at)
                rest = file.read() if keep else b""
                if rest:
                    _write(backup, rest)
                    kept.append(backup)
                if damage.cut_at:
                    file.truncate(damage.cut_at)
                    os.fsync(file.fileno())
            if not damage.cut_at:
                damage.path.unlink()
        good = {file.path for file in found.segments}
        for first, path in self.segment_files():
            if path not in good and path.exists() and first >= found.manifest.first_lsn:
                if not keep:
                    path.unlink()
                    continue
                aside = path.with_name(f"{path.name}.cut-0")
                os.rename(path, aside)
                kept.append(aside)
        self.sync()
        found.damage = None
        return kept

    def remove(self, paths: list[Path]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _write(path: Path, contents: bytes) -> None:
    """Writes a file that only its owner may read, and syncs it. Removes it if that fails."""
    try:
        with open(path, "wb", opener=private) as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def corrupt(detail: str) -> VerbenaError:
    """Returns the error for damaged files."""
    return setup_error("log_corrupt", operation="read the store's files", detail=detail)


def failed(operation: str, error: OSError) -> VerbenaError:
    """The error for a directory that cannot be read or written."""
    return setup_error("log_failed", operation=operation, detail=error.filename or "", errno=error.errno)


def _checksum(fields: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"
