"""The cluster map in a SQLite file: for nodes of one machine, without another server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from verbena import _sqlite
from verbena.errors import setup_error
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.stores import Stored, conflict

Result = TypeVar("Result")
_POLL_S = 0.02
_TIMEOUT_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS map (id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS leases (
    member TEXT PRIMARY KEY, token INTEGER NOT NULL, ends REAL NOT NULL, said TEXT NOT NULL DEFAULT '');
"""


def _now() -> float:
    """A clock that all processes of this machine share, and that runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SqliteStore:
    def __init__(self, path: str, *, create: bool = True) -> None:
        self.path = path
        if not create and not os.path.exists(path):
            raise self._error("the file does not exist: no node has been started with it")
        self._lock = threading.Lock()
        self._writes = 0  # by this connection
        self._busy_timeout_ms = -1
        try:
            self._connection = _sqlite.connect(path, timeout_s=_TIMEOUT_S)
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_SCHEMA)
            with contextlib.suppress(sqlite3.OperationalError):  # the column exists, as in new files
                self._connection.execute("ALTER TABLE leases ADD COLUMN said TEXT NOT NULL DEFAULT ''")
        except sqlite3.Error as error:
            raise self._error(error) from error

    async def load(self) -> Stored:
        return await self._do(self._load)

    async def compare_and_swap(
        self,
        revision: int,
        new: ClusterMap,
        *,
        without_lease: str | None = None,
        begin_within_s: float | None = None,
    ) -> Stored:
        return await self._do(lambda: self._swap(revision, new, without_lease), timeout_s=begin_within_s)

    async def watch(self, revision: int) -> AsyncIterator[Stored]:
        seen = (-1, -1)
        while True:
            # data_version is cheap to read. It changes when another connection writes, not by own writes.
            now = (await self._do(lambda: int(self._one("PRAGMA data_version")[0])), self._writes)
            if now == seen:
                await asyncio.sleep(_POLL_S)
                continue
            seen = now
            held = await self.load()
            if held.revision > revision:
                revision = held.revision
                yield held

    async def lease(self, member: str, ttl_s: float) -> SqliteLease:
        lease = SqliteLease(self, member, ttl_s, time.time_ns())
        await lease.take()
        return lease

    async def leaseholders(self) -> set[str]:
        return set(await self.announcements())

    async def announcements(self) -> dict[str, str]:
        def read() -> dict[str, str]:
            rows = self._connection.execute("SELECT member, said FROM leases WHERE ends > ?", (_now(),))
            return {str(member): str(said) for member, said in rows}

        return await self._do(read)

    async def close(self) -> None:
        with self._lock:
            self._connection.close()

    # On a thread, with the lock

    def _one(self, sql: str, *values: object) -> Any:
        return self._connection.execute(sql, values).fetchone()

    def _load(self) -> Stored:
        row = self._one("SELECT revision, value FROM map")
        if row is None:
            return Stored(0, ClusterMap())
        revision, value = row
        return Stored(int(revision), ClusterMap.decode(bytes(value)))

    def _swap(self, revision: int, new: ClusterMap, without_lease: str | None) -> Stored:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            held = self._load()
            if held.revision != revision:
                raise conflict(f"the map is at revision {held.revision}, not {revision}")
            if without_lease is not None:
                row = self._one("SELECT ends FROM leases WHERE member = ?", without_lease)
                if row is not None and float(row[0]) > _now():
                    raise conflict(f"{without_lease} holds a lease")
            self._connection.execute(
                "INSERT INTO map VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " revision = excluded.revision, value = excluded.value",
                (revision + 1, new.encode()),
            )
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a COMMIT that failed may have ended it
                self._connection.execute("ROLLBACK")
            raise
        self._writes += 1
        return Stored(revision + 1, new)

    async def _do(self, function: Callable[[], Result], *, timeout_s: float | None = None) -> Result:
        ends = None if timeout_s is None else time.monotonic() + max(0.0, timeout_s)

        def locked() -> Result:
            if not self._lock.acquire(timeout=-1 if ends is None else max(0.0, ends - time.monotonic())):
                raise self._timed_out()
            try:
                self._wait_for_others(_TIMEOUT_S if ends is None else ends - time.monotonic())
                return function()
            except sqlite3.Error as error:
                if ends is not None and "locked" in str(error):
                    raise self._timed_out() from error
                raise self._error(error) from error
            finally:
                self._lock.release()

        return await asyncio.to_thread(locked)

    def _wait_for_others(self, seconds: float) -> None:
        """Sets how long the next statements may wait for other processes. Only the first write of a
        transaction waits: after it this connection holds the file's write lock."""
        wanted_ms = max(0, int(seconds * 1000))
        if wanted_ms != self._busy_timeout_ms:
            self._connection.execute(f"PRAGMA busy_timeout = {wanted_ms}")
            self._busy_timeout_ms = wanted_ms

    def _timed_out(self) -> Exception:
        detail = "another process is writing to it"
        return setup_error("map_not_asked", operation="change the cluster map", peer=self.path, detail=detail)

    def _error(self, error: sqlite3.Error | str) -> Exception:
        return setup_error("map_store", operation="use the map store", peer=self.path, detail=str(error))


class SqliteLease:
    def __init__(self, store: SqliteStore, member: str, ttl_s: float, token: int) -> None:
        self._store, self._member, self._token = store, member, token
        self.ttl_s = ttl_s
        self.valid_until = 0.0

    async def take(self) -> None:
        """Replaces a former lease of this member, so that a restarted member gets its lease at once."""
        requested = time.monotonic()

        def write() -> None:
            self._store._connection.execute(
                "INSERT INTO leases (member, token, ends) VALUES (?, ?, ?) ON CONFLICT (member) DO UPDATE SET"
                " token = excluded.token, ends = excluded.ends, said = excluded.said",
                (self._member, self._token, _now() + self.ttl_s),
            )

        await self._store._do(write)
        self.valid_until = requested + self.ttl_s

    async def renew(self) -> None:
        requested = time.monotonic()
        await self._update("ends", lambda now: now + self.ttl_s)
        self.valid_until = requested + self.ttl_s

    async def announce(self, text: str) -> None:
        await self._update("said", lambda now: text)

    async def _update(self, column: str, value: Callable[[float], object]) -> None:
        def write() -> int:
            now = _now()
            return self._store._connection.execute(
                f"UPDATE leases SET {column} = ? WHERE member = ? AND token = ? AND ends > ?",
                (value(now), self._member, self._token, now),
            ).rowcount

        if not await self._store._do(write):
            raise setup_error("lease_lost", operation="renew the lease", peer=self._store.path)

    async def revoke(self) -> None:
        def write() -> None:
            self._store._connection.execute(
                "DELETE FROM leases WHERE member = ? AND token = ?", (self._member, self._token)
            )

        await self._store._do(write)
        self.valid_until = 0.0
