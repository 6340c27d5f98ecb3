"""Persistence of a store: loads it at the start, writes the log and snapshots, and reports their state.
Native code (kv/journal) reads and writes the bytes; `disk.py` manages the directory."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.config.store import KvPersistence
from verbena.errors import VerbenaError
from verbena.kv.commands.declare import find
from verbena.kv.commands.replies import CommandError
from verbena.kv.server.blocked_clients import DISK
from verbena.kv.server.parameter_kinds import Choice, Integer, Memory, Text, YesNo
from verbena.kv.server.parameters import Parameter, Parameters
from verbena.kv.storage.disk import Disk, Inventory, Manifest, corrupt, failed

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

IN_PROGRESS = "ERR Background save already in progress"
SLICE_S = 0.005  # loading holds the engine at most this long, so that clients get -LOADING
REPORT_AFTER_S = 2.0
RETRY_S, RETRY_URGENT_S = 60.0, 1.0


@dataclass(frozen=True)
class Settings:
    """`dir` "": no persistence. A snapshot is made when the log has grown to `snapshot_percentage` (0: never)
    of the last snapshot's size, and to at least `snapshot_min_bytes`."""

    dir: str = ""
    fsync: str = "everysec"
    snapshot_percentage: int = 100
    snapshot_min_bytes: int = 64 << 20

    @classmethod
    def of(cls, config: KvPersistence) -> Settings:
        """Returns the settings of a configuration."""
        return cls(config.dir, config.fsync, config.snapshot_percentage, config.snapshot_min_size)


def _to_stderr(line: str) -> None:
    print(f"verbena: {line}", file=sys.stderr, flush=True)


class Persistence:
    """The persistence of one server. Created before clients are accepted; they get -LOADING until open() has
    ended."""

    def __init__(
        self, server: Server, settings: Settings, *, report: Callable[[str], None] = _to_stderr
    ) -> None:
        self.settings = settings
        self.last_save_s = int(time.time())
        self.last_save_failed = ""
        self.last_save_took_s = -1.0
        self.saves = self.failed_saves = 0  # since the start; failures since the last success
        self.last_load_s = 0.0
        self._server = server
        self._report = report
        self._disk: Disk | None = None
        self._log: _native.kv.Log | None = None
        self._manifest = Manifest()
        self._snapshot: _native.kv.Snapshot | None = None
        self._publisher: threading.Thread | None = None
        self._published: Manifest | str = ""  # or the reason of the failure
        self._began_s = 0.0
        self._next_try_s = 0.0
        self._older_bytes = 0  # of segments before the current one
        self._base_bytes = 0  # of the last snapshot
        self._saved_dirty = 0
        self._signalled_lsn = 0
        self._loader: _native.kv.Loader | None = None
        self._load_began_s = 0.0
        self._load_total = self._load_done = 0
        server.services.persistence = self
        server.services.on_tick.append(self.tick)
        server.services.before_shutdown.append(self._before_shutdown)
        for row in self._parameters():
            server.parameters.add(row)
        if settings.dir:
            server.engine.loading = True

    def _parameters(self) -> tuple[Parameter, ...]:
        """Returns the parameters of CONFIG, with Redis' names."""
        settings, section = self.settings, "kv.persistence"

        def change(field: str) -> Callable[[Parameters, Any], None]:
            def apply(parameters: Parameters, value: Any) -> None:
                self.settings = replace(self.settings, **{field: value})
                if field == "fsync" and self._log is not None:
                    self._log.set_fsync(value)

            return apply

        policies = Choice(("everysec", "always", "no"))
        percentage, least = settings.snapshot_percentage, settings.snapshot_min_bytes
        return (
            Parameter("dir", Text(), settings.dir, key=f"{section}.dir"),
            Parameter("appendonly", YesNo(), bool(settings.dir)),
            Parameter("appendfsync", policies, settings.fsync, change("fsync"), key=f"{section}.fsync"),
            Parameter(
                "auto-aof-rewrite-percentage", Integer(0, 10_000), percentage, change("snapshot_percentage"),
                key=f"{section}.snapshot_percentage",
            ),
            Parameter(
                "auto-aof-rewrite-min-size", Memory(), least, change("snapshot_min_bytes"),
                key=f"{section}.snapshot_min_size",
            ),
            Parameter("save", Text(), ""),
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        return self._log is not None

    # Start and end

    def open(self) -> None:
        """Loads the directory, and logs changes from now on. VerbenaError: the files are damaged; nothing has
        been changed."""
        if not self.settings.dir:
            return
        disk = Disk(self.settings.dir)
        try:
            found = disk.verify()
            if found.damage is not None and not found.damage.torn:
                raise corrupt(str(found.damage))
            if found.damage is not None:
                self._cut(disk, found)
            self._load(disk, found)
        except OSError as error:
            disk.close()
            raise failed("open the store's files", error) from error
        except BaseException:
            disk.close()
            raise

    def _cut(self, disk: Disk, found: Inventory) -> None:
        """Cuts off an interrupted write. Records behind it were never acknowledged as durable; they are kept
        in a file if the disk has room for it."""
        damage = found.damage
        assert damage is not None
        where = ""
        if damage.records_behind:
            try:
                kept = disk.cut(found)
                where = f"; the {damage.records_behind} records behind it are in {kept[0].name}"
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                where = f"; the {damage.records_behind} records behind it were removed: the disk is full"
        if found.damage is not None:
            disk.cut(found, keep=False)
        self._report(f"the log ended in the middle of a write, which has been cut off: {damage}{where}")

    def _load(self, disk: Disk, found: Inventory) -> None:
        began, manifest = time.monotonic(), found.manifest
        self._load_began_s = time.time()
        files = [("survey", file) for file in found.segments] if found.snapshot else []
        files += [("snapshot", found.snapshot)] if found.snapshot else []
        files += [("log", file) for file in found.segments]
        last_lsn = found.snapshot.report["last_lsn"] if found.snapshot else 0
        self._load_total = sum(file.report["whole_bytes"] for _, file in files)
        loader = self._loader = _native.kv.Loader(self._server.engine, self._apply)
        try:
            reported = began
            for phase, file in files:
                loader.begin(phase, str(file.path), file.report["whole_bytes"], last_lsn)
                while loader.step(SLICE_S):
                    time.sleep(0)  # lets the event loop's thread use the engine
                    if time.monotonic() - reported > REPORT_AFTER_S:
                        reported = time.monotonic()
                        self._report(
                            f"loading {file.path.name}: {loader.fraction:.0%}, {loader.applied:,} records"
                        )
                self._load_done += file.report["whole_bytes"]
            if loader.failed or self._failed:
                text = loader.first_failure or self._first_failure
                self._report(
                    f"{loader.failed + self._failed} records answered with errors; the first: {text.strip()}"
                )
            for file in found.segments[
                -1:
            ]:  # what a crash left in the kernel's cache counts as durable from now on
                with open(file.path, "rb") as opened:
                    os.fsync(opened.fileno())
            disk.remove(found.stale)
            current = [first for first, path in disk.segment_files() if first < found.next_lsn]
            self._manifest = replace(manifest, segments=tuple(current), closed_lsn=0)
            disk.write_manifest(self._manifest)
            self._log = disk.with_reserve(
                lambda: _native.kv.Log(
                    self._server.engine,
                    directory=str(disk.path),
                    fsync=self.settings.fsync,
                    next_lsn=found.next_lsn,
                    epoch=manifest.epoch,
                )
            )
            disk.fill_reserve()
            self._server.execution.logging = True
            self._disk = disk
            self._older_bytes = sum(file.report["whole_bytes"] for file in found.segments)
            self._base_bytes = found.snapshot.report["file_bytes"] if found.snapshot else 0
            if found.snapshot:
                self.last_save_s = found.snapshot.report["created_ms"] // 1000
            applied = loader.applied
        finally:
            # Only now: no client may write before the log is open.
            self._loader = None
            loader.close()
            self._server.clients.remove(self._loader_client)
        self.last_load_s = time.monotonic() - began
        if self.last_load_s > REPORT_AFTER_S:
            self._report(f"loaded {applied:,} records in {self.last_load_s:.1f} s")

    _failed = 0
    _first_failure = ""
    _loader_client = 0

    def _apply(self, database: int, argv: list[bytes]) -> None:
        """Applies a record whose command only Python has."""
        assert self._loader is not None
        native = self._loader.client
        self._loader_client = native.id
        client = self._server.clients.ensure(native.id)
        native.database = database
        command = find(argv)
        if command is None:
            raise corrupt(f"the log has an unknown command: {argv[0]!r}")
        reply = self._server.perform(client, command, argv)
        if isinstance(reply, CommandError):
            self._failed += 1
            self._first_failure = self._first_failure or f"{argv[0].decode('latin-1')}: {reply.text}"

    def _before_shutdown(self, save: bool | None) -> None:
        """SHUTDOWN SAVE: makes a snapshot. The log is complete in any case."""
        if save and self.is_on:
            self.save()

    def close(self) -> None:
        """Writes everything to disk. Call it after the event loop has ended."""
        if self._log is None or self._disk is None:
            return
        if self._publisher is not None:
            self._publisher.join()
            self._collect()
        if self._snapshot is not None:
            self._give_up("the server ends")
        whole = self._log.flush()
        lsn = self._log.counters()["lsn"]
        self._server.execution.logging = bool(self._server.engine.backlog_counters()["has_backlog"])
        self._log.close()
        if whole:
            first = self._log.counters()["segment_first_lsn"]
            segments = tuple(sorted({*self._manifest.segments, first}))
            self._disk.write_manifest(replace(self._manifest, segments=segments, closed_lsn=lsn))
        self._log = None
        self._disk.close()
        self._disk = None

    # Snapshots

    @property
    def is_saving(self) -> bool:
        return self._snapshot is not None

    def begin(self) -> None:
        """Begins a snapshot, which runs between commands. CommandError: it cannot begin."""
        log, disk = self._require()
        if self._snapshot is not None:
            raise CommandError(IN_PROGRESS)
        before = log.counters()
        path = disk.path / "snapshot.tmp"
        try:
            self._snapshot = _native.kv.Snapshot(log, path=str(path), epoch=self._manifest.epoch)
        except VerbenaError as error:
            self._failed_save(str(error).splitlines()[0])
            raise CommandError(f"ERR the snapshot cannot be begun: {self.last_save_failed}") from error
        if log.counters()["segment_first_lsn"] != before["segment_first_lsn"]:
            self._older_bytes += before["segment_bytes"]
        self._began_s = time.monotonic()
        self._dirty_at_start = self._server.engine.counters()["dirty"]

    _dirty_at_start = 0

    def save(self) -> None:
        """Makes a snapshot at once; no command runs meanwhile. CommandError: it failed."""
        self.begin()
        assert self._snapshot is not None
        if not self._snapshot.finish():
            why = self._snapshot.error
            self._give_up(why)
            raise CommandError(f"ERR the snapshot failed: {why}")
        self._publish()
        self._collect()
        if self.last_save_failed:
            raise CommandError(f"ERR the snapshot failed: {self.last_save_failed}")

    def _publish(self) -> None:
        """Makes the finished snapshot the current one, and removes the files it replaces. Syncs: not on the
        loop."""
        assert self._snapshot is not None
        assert self._disk is not None
        disk, counters = self._disk, self._snapshot.counters()
        first = counters["first_lsn"]
        path = disk.snapshot_path(first)
        try:
            os.rename(disk.path / "snapshot.tmp", path)
            disk.sync()
            manifest = replace(self._manifest, snapshot=path.name, first_lsn=first, segments=(first,))
            disk.write_manifest(manifest)
            old = [segment for begins, segment in disk.segment_files() if begins < first]
            if self._manifest.snapshot and self._manifest.snapshot != path.name:
                old.append(disk.path / self._manifest.snapshot)
            disk.remove(old)
            self._published = manifest
        except OSError as error:
            self._published = str(error)

    def _collect(self) -> None:
        """Updates the state after _publish()."""
        assert self._snapshot is not None
        assert self._log is not None
        self._publisher = None
        if isinstance(self._published, str):
            return self._give_up(self._published)
        self._manifest = self._published
        if self._disk is not None:
            self._disk.fill_reserve()
        self._base_bytes = self._snapshot.counters()["bytes"]
        self._snapshot.close()
        self._snapshot = None
        self._older_bytes = 0
        self._saved_dirty = self._dirty_at_start
        self.last_save_failed = ""
        self.last_save_s = int(time.time())
        self.last_save_took_s = time.monotonic() - self._began_s
        self.saves += 1
        self.failed_saves = 0
        self._log.clear_sync_failure()

    def _give_up(self, why: str) -> None:
        assert self._snapshot is not None
        assert self._disk is not None
        self._snapshot.close()
        self._snapshot = None
        with contextlib.suppress(OSError):
            (self._disk.path / "snapshot.tmp").unlink()
        self._failed_save(why)

    def _failed_save(self, why: str) -> None:
        if why != self.last_save_failed:
            self._report(f"a snapshot failed: {why}")
        self.last_save_failed = why
        self.failed_saves += 1

    def tick(self) -> None:
        """Called regularly on the engine's thread."""
        if self._log is None:
            return
        counters, now = self._log.counters(), time.monotonic()
        if self._publisher is not None:
            if not self._publisher.is_alive():
                self._collect()
        elif self._snapshot is not None:
            state = self._snapshot.state
            if state == "failed":
                self._give_up(self._snapshot.error)
            elif state == "done":
                self._publisher = threading.Thread(target=self._publish, name="verbena-kv-publish")
                self._publisher.start()
        elif (counters["needs_snapshot"] or self._has_grown(counters)) and now >= self._next_try_s:
            self._next_try_s = now + (RETRY_URGENT_S if counters["needs_snapshot"] else RETRY_S)
            with contextlib.suppress(CommandError):
                self.begin()
        if counters["durable_lsn"] > self._signalled_lsn:
            self._signalled_lsn = counters["durable_lsn"]
            self._wake_waiting()

    def _has_grown(self, counters: dict[str, int]) -> bool:
        percentage = self.settings.snapshot_percentage
        grown = self._older_bytes + counters["segment_bytes"]
        least = max(self.settings.snapshot_min_bytes, self._base_bytes * percentage // 100)
        return percentage > 0 and grown > least

    # For commands

    @property
    def lsn(self) -> int:
        return self._log.counters()["lsn"] if self._log is not None else 0

    @property
    def durable_lsn(self) -> int:
        return self._log.counters()["durable_lsn"] if self._log is not None else 0

    def _wake_waiting(self) -> None:
        blocking = self._server.blocking
        places = [place for place in blocking.by_key if place[1] == DISK]
        for database, key in places:
            blocking.signal(database, key)
        if places:
            blocking.serve()

    def reload(self) -> None:
        """DEBUG RELOAD: clears all databases and loads them from disk. On the engine's thread."""
        log, _ = self._require()
        if self._snapshot is not None:
            raise CommandError(IN_PROGRESS)
        if not log.flush():
            raise CommandError(log.write_error or "ERR the log cannot be written")
        self.close()
        for database in self._server.databases:
            database.clear()
        self._failed, self._first_failure = 0, ""
        self._server.engine.loading = True
        self.open()

    def _require(self) -> tuple[_native.kv.Log, Disk]:
        if self._log is None or self._disk is None:
            raise CommandError("ERR persistence is off: kv.persistence.dir is not set")
        return self._log, self._disk

    def info(self) -> dict[str, Any]:
        """Returns the fields of INFO persistence."""
        loader = self._loader
        fields: dict[str, Any] = {"loading": int(self._server.engine.loading), "async_loading": 0}
        if loader is not None:
            done = self._load_done
            fields |= {
                "loading_start_time": int(self._load_began_s),
                "loading_total_bytes": self._load_total,
                "loading_loaded_bytes": done,
                "loading_loaded_perc": f"{done / self._load_total if self._load_total else 1:.2%}".rstrip(
                    "%"
                ),
            }
        dirty = self._server.engine.counters()["dirty"]
        log = self._log.counters() if self._log is not None else None
        saving = self._snapshot is not None
        elapsed = int(time.monotonic() - self._began_s) if saving else -1
        status = "err" if self.last_save_failed else "ok"
        fields |= {
            "rdb_changes_since_last_save": dirty - self._saved_dirty,
            "rdb_bgsave_in_progress": int(saving),
            "rdb_last_save_time": self.last_save_s,
            "rdb_last_bgsave_status": status,
            "rdb_last_bgsave_time_sec": int(self.last_save_took_s),
            "rdb_current_bgsave_time_sec": elapsed,
            "rdb_saves": self.saves,
            "aof_enabled": int(log is not None),
            "aof_rewrite_in_progress": int(saving),
            "aof_rewrite_scheduled": 0,
            "aof_pending_rewrite": 0,
            "aof_last_rewrite_time_sec": int(self.last_save_took_s),
            "aof_current_rewrite_time_sec": elapsed,
            "aof_last_bgrewrite_status": status,
            "aof_rewrites": self.saves,
            "aof_rewrites_consecutive_failures": self.failed_saves,
            # Snapshots are made without a child process: nothing is copied on write.
            "rdb_last_cow_size": 0,
            "aof_last_cow_size": 0,
            "aof_last_write_status": "err" if self._log is not None and self._log.write_error else "ok",
        }
        if log is not None:
            fields |= {
                "aof_current_size": self._older_bytes + log["segment_bytes"] + self._base_bytes,
                "aof_base_size": self._base_bytes,
                "aof_buffer_length": log["pending_bytes"],
                "aof_pending_bio_fsync": log["syncing"],
                "aof_delayed_fsync": log["delayed_syncs"],
                "log_fsync": self.settings.fsync,
                "log_lsn": log["lsn"],
                "log_durable_lsn": log["durable_lsn"],
                "log_epoch": self._manifest.epoch,
                "log_syncs": log["syncs"],
                "log_longest_sync_us": log["longest_sync_ns"] // 1000,
                "log_failures": log["failures"],
            }
        if self._snapshot is not None:
            counters = self._snapshot.counters()
            fields |= {
                "snapshot_records": counters["records"],
                "snapshot_bytes": counters["bytes"],
                "snapshot_longest_slice_us": counters["longest_slice_ns"] // 1000,
            }
        return fields

    @property
    def directory(self) -> Path:
        return Path(self.settings.dir)
