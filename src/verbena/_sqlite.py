"""SQLite files that several processes share: the registry's data and the cluster's map."""

from __future__ import annotations

import os
import sqlite3
import time


def connect(file: str | os.PathLike[str], *, patience_s: float) -> sqlite3.Connection:
    """A connection in WAL mode, for any thread, without transactions of Python's own. Whoever finds the file
    in use waits up to `patience_s`. Raises sqlite3.Error."""
    connection = sqlite3.connect(file, timeout=patience_s, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead(connection, time.monotonic() + patience_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, ends: float) -> None:
    """Of all that waits for others in SQLite, only this switch does not do so by itself: of two who open a
    new file at once, one is told that it is locked."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > ends:
                raise
        time.sleep(0.005)
