"""Stores to compare: ours and redis-server, each started as a process on loopback without persistence, or any
running RESP server; and the C++ client that loads them all in the same way."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from verbena import _native
from verbena._closing import Closing
from verbena.errors import setup_error
from verbena.kv.client.resp_connection import ErrorReply, RespConnection, pack

PREFIX = "verbena-bench:"
DIGITS = 12
KEY = f"{PREFIX}{'0' * DIGITS}"  # placeholder for a random key in a request


@dataclass(frozen=True)
class Store:
    """The address of a store. `pid` is 0 and `sessions` is empty if unknown."""

    name: str
    host: str
    port: int
    password: str = ""
    pid: int = 0
    sessions: str = ""

    def wire(self) -> RespConnection:
        """Opens an authenticated connection. Raises VerbenaError."""
        wire = RespConnection(self.host, self.port, timeout_s=10)
        if self.password:
            answer = wire.call("AUTH", self.password)
            if isinstance(answer, ErrorReply):
                wire.close()
                raise setup_error("rejected", operation="authenticate", peer=wire.where, detail=str(answer))
        return wire

    def call(self, *words: str | bytes) -> object:
        with self.wire() as wire:
            return wire.call(*words)

    def remove_keys(self, keys: int, *, suffixes: tuple[str, ...] = ("",)) -> None:
        """Deletes the keys that a load may have left."""
        with self.wire() as wire:
            for start in range(0, keys, 1000):
                numbers = range(start, min(start + 1000, keys))
                wire.call("DEL", *(f"{PREFIX}{n:0{DIGITS}}{end}" for n in numbers for end in suffixes))


@contextlib.contextmanager
def verbena_store(**settings: str) -> Iterator[Store]:
    """`settings`: environment variables of the configuration; otherwise it has its defaults."""
    port = _free_port()
    ports = ["--kv-port", str(port), "--session-listen-port", "0"]
    command = [sys.executable, "-m", "verbena", "serve", *ports]
    # Run with defaults: the user's configuration is for other servers.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
    variables |= settings
    with (
        tempfile.TemporaryDirectory(prefix="verbena-bench-") as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=variables) as process,
    ):
        try:
            assert process.stdout is not None
            sessions = ""
            for line in process.stdout:
                words = line.split()
                if words[:1] == ["sessions"]:
                    sessions = words[1]
                elif words[:1] == ["try:"]:
                    break
            else:
                raise setup_error(
                    "unreachable", operation="start a store", detail="the process exited immediately"
                )
            yield Store("verbena", "127.0.0.1", port, pid=process.pid, sessions=sessions)
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def has_redis_server() -> bool:
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def redis_store() -> Iterator[Store]:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="verbena-bench-") as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                if not any("eady to accept connections" in line for line in process.stdout):
                    raise setup_error(
                        "unreachable", operation="start redis-server", detail="the process exited immediately"
                    )
                yield Store("redis-server", "127.0.0.1", port, pid=process.pid)
            finally:
                process.terminate()


class Load(Closing):
    """Requests of one kind to one store, sent by the C++ client. Occurrences of KEY are replaced by keys of
    the key space."""

    def __init__(
        self,
        store: Store,
        *words: str | bytes,
        keys: int,
        clients: int = 1,
        depth: int = 1,
        in_order: bool = False,
    ) -> None:
        request = pack(*words)
        places = [found.end() - DIGITS for found in re.finditer(re.escape(KEY.encode()), request)]
        self.store = store
        self.depth = depth
        self._wires: list[RespConnection] = []
        try:
            for _ in range(clients):
                self._wires.append(store.wire())
        except BaseException:
            self.close()
            raise
        for wire in self._wires:
            wire.socket.settimeout(None)
        self._load = _native.bench.RespLoad(
            [wire.socket.fileno() for wire in self._wires],
            request,
            keys_at=places,
            keys=keys,
            in_order=in_order,
            depth=depth,
        )

    def run(self, batches: int) -> tuple[array[float], _native.bench.RespResult]:
        """Returns the nanoseconds of each batch, and the totals. Raises VerbenaError if the server closed a
        connection, did not respond, or sent an error."""
        samples = array("d", bytes(8 * batches))
        result = self._load.run(samples)
        if not result.finished or result.errors:
            detail = (
                f"{result.errors} errors"
                if result.finished
                else "the server closed a connection or did not respond"
            )
            raise setup_error("peer_died", operation="load a server", peer=self.store.name, detail=detail)
        return samples, result

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
