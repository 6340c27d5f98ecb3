"""The distribution's redis-server on its own Unix socket, and connections that keep the type of every
reply."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.kv.resp import Word, pack

SERVER = shutil.which("redis-server")
MISSING = "redis-server is not installed (apt-get install redis-server)"


class Peer:
    """One connection. Replies are (type byte, content), as from memory_database.wire()."""

    def __init__(self, path: Path, protocol: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")
        self.protocol = protocol
        if protocol == 3:
            self.run("HELLO", "3")

    def run(self, *words: Word) -> Any:
        self.send(*words)
        return self.read()

    def send(self, *words: Word) -> None:
        self.send_all([words])

    def send_all(self, commands: Iterable[Sequence[Word]]) -> None:
        self.socket.sendall(b"".join(pack(*words) for words in commands))

    def read(self) -> Any:
        line = self.file.readline()
        kind, rest = chr(line[0]), line[1:-2]
        if kind == ":":
            return (kind, int(rest))
        if kind in "+-":
            return (kind, rest.decode("latin-1"))
        if kind == "_":
            return (kind, None)
        if kind == ",":
            return (kind, rest)
        count = int(rest)
        if count < 0:
            return (kind, None)
        if kind == "$":
            content = self.file.read(count)
            self.file.read(2)
            return (kind, content)
        return (kind, [self.read() for _ in range(count * (2 if kind == "%" else 1))])

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[Path]:
    """Starts redis-server and yields the path of its socket."""
    assert SERVER is not None
    path = folder / "redis.sock"
    arguments = [
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--save",
        "",
        "--appendonly",
        "no",
        "--enable-debug-command",
        "local",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(
        [SERVER, *arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "ready to accept connections" in line:
                    break
            else:
                raise RuntimeError("redis-server ended at once")
            yield path
        finally:
            process.terminate()
