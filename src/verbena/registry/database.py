"""SQLite in WAL mode: one connection for writes, with its own thread, and one for reads, on the caller's
thread. Reads never wait for a writer. Write transactions exclude those of other processes too, so garbage
collection and scrub may run beside a server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from verbena import _sqlite
from verbena.errors import setup_error

Result = TypeVar("Result")

VERSION = 2
SCHEMA = """
CREATE TABLE repositories (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created REAL NOT NULL
);
CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    created REAL NOT NULL,
    object TEXT  -- object name in the bucket; NULL: the blob is a file only
) WITHOUT ROWID;
-- The repositories that have a blob. A mount adds one row.
CREATE TABLE links (
    repository INTEGER NOT NULL REFERENCES repositories (id),
    digest TEXT NOT NULL REFERENCES blobs (digest),
    touched REAL NOT NULL,
    PRIMARY KEY (repository, digest)
) WITHOUT ROWID;
CREATE INDEX links_by_digest ON links (digest);
CREATE TABLE manifests (
    id INTEGER PRIMARY KEY,
    repository INTEGER NOT NULL REFERENCES repositories (id),
    digest TEXT NOT NULL,
    media_type TEXT NOT NULL,
    subject TEXT,
    artifact_type TEXT,
    annotations TEXT,
    touched REAL NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (repository, digest)
);
CREATE INDEX manifests_by_subject ON manifests (repository, subject) WHERE subject IS NOT NULL;
-- The blobs and, for an index, the manifests that a manifest references.
CREATE TABLE parts (
    repository INTEGER NOT NULL,
    digest TEXT NOT NULL,
    manifest INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    PRIMARY KEY (repository, digest, manifest)
) WITHOUT ROWID;
CREATE INDEX parts_by_manifest ON parts (manifest);
CREATE TABLE tags (
    repository INTEGER NOT NULL REFERENCES repositories (id),
    name TEXT NOT NULL,
    manifest INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    touched REAL NOT NULL,
    PRIMARY KEY (repository, name)
) WITHOUT ROWID;
CREATE INDEX tags_by_manifest ON tags (manifest);
CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    repository TEXT NOT NULL,
    algorithm TEXT NOT NULL,
    touched REAL NOT NULL
) WITHOUT ROWID;
"""
# The statement that upgrades a database from each version to the next.
STEPS = {1: "ALTER TABLE blobs ADD COLUMN object TEXT"}


class Database:
    """Opens `file`, or creates it. Raises UnavailableError if SQLite cannot use it or its version is too
    new."""

    def __init__(self, file: Path) -> None:
        self._writer = self._connect(file)
        try:
            self._prepare(file)
            self._reader = self._connect(file)
        except BaseException:
            self._writer.close()
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry-database")

    @staticmethod
    def _connect(file: Path) -> sqlite3.Connection:
        try:
            connection = _sqlite.connect(file, timeout_s=30)
        except sqlite3.Error as error:
            raise _unusable(file, str(error)) from error
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _prepare(self, file: Path) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            [version] = self._writer.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in SCHEMA.split(";\n"):
                    self._writer.execute(statement)
            for older in range(version or VERSION, VERSION):
                self._writer.execute(STEPS[older])
            if version < VERSION:
                self._writer.execute(f"PRAGMA user_version = {VERSION}")
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise _unusable(file, str(error)) from error
        if version > VERSION:
            raise _unusable(
                file, f"format {version} is newer than {VERSION}, the latest that this version supports"
            )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a query and returns all its rows: a cursor left open would prevent WAL checkpoints from
        completing."""
        return self._reader.execute(query, values).fetchall()

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        found = self.rows(query, *values)
        return found[0] if found else None

    def write_here(self, work: Callable[[sqlite3.Connection], Result], *, durable: bool = True) -> Result:
        """Runs `work` in a transaction on this thread. A durable one is on disk at return; another survives a
        crash of the process, perhaps not of the machine. If `work` raises, the transaction is rolled back."""
        self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._writer)
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        return result

    async def write(self, work: Callable[[sqlite3.Connection], Result], *, durable: bool = True) -> Result:
        """`write_here()` on the writer's thread. Cancelling the caller does not interrupt the transaction."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, lambda: self.write_here(work, durable=durable))
        return await asyncio.shield(future)

    def close(self) -> None:
        self._thread.shutdown()
        self._reader.close()
        self._writer.close()


def _unusable(file: Path, reason: str) -> Exception:
    return setup_error("registry_folder", operation="open the registry's data", detail=f"{file}: {reason}")
