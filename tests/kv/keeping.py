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


class Connection:
    """A plain RESP connection that counts sent commands and received replies."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, *words: bytes) -> None:
        self.socket.sendall(pack(*words))

    def run(self, *words: bytes) -> Any:
        self.send(*words)
        return self.receive()

    def receive(self) -> Any:
        """Returns the next reply; error replies are text. ConnectionError: the server has closed the
        connection."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError
        kind, rest = line[:1], line[1:-2]
        if kind in b"+-":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"*":
            return [self.receive() for _ in range(int(rest))]
        body = self.file.read(int(rest) + 2)
        if len(body) < int(rest) + 2:
            raise ConnectionError
        return body[:-2]

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def pack(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


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
