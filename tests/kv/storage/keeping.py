"""A store with persistence in its own process: `python keeping.py DIR FSYNC [LARGEST_FILE]` prints its port,
and serves until its input ends. Also the helpers that tests of such stores share."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verbena.kv.server.server import Server
from verbena.kv.storage.persistence import Persistence, Settings
from verbena.kv.values.collections import SortedSet


def contents(server: Server) -> dict[tuple[int, bytes], tuple[str, Any, int]]:
    """The whole contents: (database, key) → (type, value, expiry time)."""
    found: dict[tuple[int, bytes], tuple[str, Any, int]] = {}
    for number, database in enumerate(server.databases):
        cursor = -1
        while cursor:
            cursor, rows = server.engine.database(number).scan(max(cursor, 0), 1000, True)
            for key, value, expires_ms in rows:
                found[number, key] = (database.type_of(key), plain(value), expires_ms)
    return found


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, SortedSet):
        return sorted(value.scores.items())
    return list(value.items()) if isinstance(value, dict) else list(value)


@contextlib.contextmanager
def kept(directory: Path, **settings: Any) -> Iterator[tuple[Server, Persistence, list[str]]]:
    """A server in this process that loaded a directory, and what it reported. Its loop does not run."""
    server, said = Server(), list[str]()
    persistence = Persistence(server, Settings(dir=str(directory), **settings), report=said.append)
    try:
        persistence.open()
        try:
            yield server, persistence, said
        finally:
            persistence.close()
    finally:
        server.close()


@contextlib.contextmanager
def serving(directory: Path, fsync: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields the process and its port. Kills the process at the end if it still runs."""
    command = [sys.executable, str(Path(__file__)), str(directory), fsync, *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def main(directory: str, fsync: str, largest_file: str = "") -> None:
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest_file), resource.RLIM_INFINITY))
    server = Server()
    persistence = Persistence(server, Settings(dir=directory, fsync=fsync))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server.engine.listen(listener.fileno())
        server.start()
        persistence.open()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        server.stop()
        persistence.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
