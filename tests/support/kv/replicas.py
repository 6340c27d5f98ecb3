"""Stores as `verbena serve` processes: a primary and its replicas."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from support.kv.resp import Connection

PATIENCE_S = 60.0


class Served:
    """One process. run() sends a command on the process's own connection."""

    def __init__(self, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "verbena",
            "serve",
            "--kv-port=0",
            "--session-listen-port=0",
            *flags,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdout is not None
        self.port = self.sessions = 0
        while not (self.port and self.sessions):
            line = self.process.stdout.readline()
            if not line:
                assert self.process.stderr is not None
                said = self.process.stderr.read()
                self.process.wait()
                self.process.stdout.close()
                self.process.stderr.close()
                raise RuntimeError(said)
            name, _, where = line.strip().partition(" ")
            if name in ("redis", "sessions"):
                port = int(where.split()[0].rpartition(":")[2])
                self.port, self.sessions = (port, self.sessions) if name == "redis" else (self.port, port)
        self.connection = Connection(self.port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, *words: str | bytes) -> Any:
        return self.connection.run(*(word.encode() if isinstance(word, str) else word for word in words))

    def follow(self, primary: Served) -> None:
        assert self.run("REPLICAOF", "127.0.0.1", str(primary.port)).startswith("OK")

    def info(self) -> dict[str, str]:
        text = self.run("INFO", "replication").decode()
        return dict(row.split(":", 1) for row in text.splitlines() if ":" in row)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def stop(self) -> None:
        self.connection.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def served(*flags: str) -> Iterator[Served]:
    store = Served(*flags)
    try:
        yield store
    finally:
        store.stop()


def until(holds: Callable[[], Any], what: str) -> Any:
    """Polls until the condition holds: processes have no other means to report it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
    return found


def in_step(primary: Served, replica: Served) -> None:
    """Returns when the replica has everything that the primary has written by now."""

    def same() -> bool:
        ours, theirs = replica.info(), primary.info()
        return (
            ours["master_link_status"] == "up"
            and ours["master_replid"] == theirs["master_replid"]
            and ours["slave_repl_offset"] == theirs["master_repl_offset"]
        )

    until(same, "the replica does not catch up")


def everything(store: Served) -> dict[tuple[int, bytes], tuple[bytes, int]]:
    """The whole contents: (database, key) → (DUMP, expiry time)."""
    found = {}
    for database in range(16):
        store.run("SELECT", str(database))
        for key in store.run("KEYS", "*"):
            found[database, key] = (store.run("DUMP", key), store.run("PEXPIRETIME", key))
    store.run("SELECT", "0")
    return found
