"""Opens SQLite files that several processes share: the data of the registry, the cluster map."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time

from verbena._files import private


def connect(file: str | os.PathLike[str], *, timeout_s: float) -> sqlite3.Connection:
    """Opens a connection in WAL mode that any thread may use, with autocommit. If the file is locked, calls
    wait up to `timeout_s`. A new file is readable by its owner only. Raises sqlite3.Error."""
    if str(file) != ":memory:":
        # SQLite gives its other files the mode of this one. If it cannot be opened, SQLite reports the cause.
        with contextlib.suppress(OSError):
            os.close(private(os.fspath(file), os.O_RDWR | os.O_CREAT))
    connection = sqlite3.connect(file, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead(connection, time.monotonic() + timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, ends: float) -> None:
    """Switches to WAL mode. Retries, since SQLite's own timeout does not cover this switch: if two processes
    open a new file, one gets "locked"."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > ends:
                raise
        time.sleep(0.005)
