"""A cluster of real `verbena serve` processes with one map, which tests kill and restart."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from support.kv.resp import Connection, ErrorReply

MAIN = [sys.executable, "-c", "import sys; from verbena.cli import main; sys.exit(main())"]
_PORTS = re.compile(r"  redis +(\S+):(\d+)\n")
_SESSIONS = re.compile(r"  sessions +(\S+):(\d+) on")
_ID = re.compile(r"  cluster +node ([0-9a-f]{40})")


@dataclass
class Node:
    """One process. `command` replaces `python -m verbena`; `prefix` precedes the command."""

    folder: Path
    store: str
    name: str
    keep: bool = True
    options: Sequence[str] = ()
    command: Sequence[str] = tuple(MAIN)
    prefix: Sequence[str] = ()
    host: str = "127.0.0.1"
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    sessions: int = 0
    id: str = ""

    def start(self) -> Node:
        place = self.folder / self.name
        place.mkdir(exist_ok=True)
        arguments = [
            *self.prefix,
            *self.command,
            *("serve", "--kv-port", str(self.port), "--kv-listen-address", self.host),
            *("--session-listen-port", str(self.sessions), "--session-listen-address", self.host),
            *("--session-node-name", self.name),
            *("--cluster-enabled", "--cluster-map-store", self.store),
            *("--cluster-folder", str(place / "cluster")),
            *(("--kv-persistence-dir", str(place / "data")) if self.keep else ()),
            *self.options,
        ]
        self.said = place / "out"
        with open(self.said, "wb") as out, open(place / "log", "ab") as log:
            environment = {**os.environ, "VERBENA_SESSION_RESUME_TIMEOUT_S": "2", **self.environment}
            self.process = subprocess.Popen(arguments, stdout=out, stderr=log, env=environment)
        return self

    def ready(self, timeout_s: float = 60.0) -> Node:
        deadline = time.monotonic() + timeout_s
        assert self.process is not None
        while "try: redis-cli" not in (text := self.said.read_text()):
            assert self.process.poll() is None, (self.folder / self.name / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, text + (self.folder / self.name / "log").read_text()[-4000:]
            time.sleep(0.02)
        self.port = int(_found(_PORTS, text)[2])
        self.sessions = int(_found(_SESSIONS, text)[2])
        self.id = _found(_ID, text)[1]
        return self

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(self.host, self.port, **options)

    def raw(self, *words: Any) -> Any:
        """Runs one command and returns its raw reply. Raises ReplyError with the error code, which redis-py
        strips."""
        with RespConnection(self.host, self.port) as wire:
            return wire.run(*words)


class ReplyError(Exception):
    """An error reply, with its full text."""


class RespConnection(Connection):
    """A connection whose error replies are raised."""

    def __init__(self, host: str, port: int, timeout_s: float = 60.0) -> None:
        super().__init__(port, host, timeout_s=timeout_s)

    def receive(self) -> Any:
        """Returns the next reply; simple strings are bytes, as bulk strings are."""
        reply = super().receive()
        if isinstance(reply, ErrorReply):
            raise ReplyError(reply)
        return reply.encode() if isinstance(reply, str) else reply


def _found(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.search(text)
    assert found is not None, text
    return found


@dataclass
class Cluster:
    nodes: list[Node]
    store: str

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def client(self, **options: Any) -> redis.RedisCluster:
        return redis.RedisCluster(host=self[0].host, port=self[0].port, **options)

    def until(self, what: Any, timeout_s: float = 60.0) -> Any:
        """Waits until a condition of the cluster holds."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.01)
        return found


@contextlib.contextmanager
def cluster(
    folder: Path, count: int = 3, *, store: str = "", assign: bool = True, **options: Any
) -> Iterator[Cluster]:
    """Starts nodes that have joined one cluster; with `assign` the slots are divided among them."""
    store = store or f"sqlite://{folder}/map.db"
    nodes = [Node(folder, store, f"n{number}", **options) for number in range(count)]
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        made = Cluster(nodes, store)
        if assign:
            step = 16384 // count
            for number, node in enumerate(nodes):
                last = 16383 if number == count - 1 else (number + 1) * step - 1
                assert node.raw("CLUSTER", "ADDSLOTSRANGE", number * step, last) == b"OK"
            for node in nodes:
                made.until(lambda node=node: b"cluster_state:ok" in info(node))
        yield made
    finally:
        for node in nodes:
            node.kill()


def info(node: Node) -> bytes:
    return bytes(node.raw("CLUSTER", "INFO"))
