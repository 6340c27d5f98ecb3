"""A second process with its own queue pair, driven by commands. Every wait for it is bounded."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from support.rdma.link import End
from verbena import verbs

MAIN = Path(__file__).with_name("peer_main.py")
ANSWER_S = 25.0


class RemotePeer:
    """The handle of the process: each attribute is a command of peer_main.Peer."""

    def __init__(self, provider: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(MAIN), str(theirs.fileno()), provider], pass_fds=[theirs.fileno()]
            )
        self.pipe = Connection(ours.detach())
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.start(name, *arguments, **options)
            return self._answer()

        return call

    def start(self, name: str, *arguments: Any, **options: Any) -> None:
        """Sends a command without waiting for its answer. Call finish() for the answer."""
        self.pipe.send((name, arguments, options))

    def finish(self) -> Any:
        return self._answer()

    def remote(self, kind: str, content: bytes, **options: Any) -> verbs.RemoteMemory:
        return verbs.RemoteMemory.from_bytes(self.region(kind, content, **options))

    def link(self, end: End, **attributes: Any) -> None:
        """Connects this side's end and the peer's queue pair by exchanging endpoints."""
        endpoint = verbs.Endpoint.from_bytes(self.endpoint())
        end.qp.connect_to(endpoint, **attributes)
        self.connect_to(end.qp.endpoint.to_bytes(), **attributes)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(ANSWER_S)

    def close(self) -> None:
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.kill()

    def __enter__(self) -> RemotePeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        self.close()

    def _answer(self) -> Any:
        if not self.pipe.poll(ANSWER_S):
            pytest.fail(
                f"the peer process did not answer within {ANSWER_S} s (exit code {self.process.poll()})"
            )
        try:
            outcome, value = self.pipe.recv()
        except EOFError:
            pytest.fail(f"the peer process died with exit code {self.process.wait(ANSWER_S)}")
        if outcome == "error":
            pytest.fail(f"in the peer process:\n{value}")
        return value


@contextlib.contextmanager
def linked(provider: str, end: End, **attributes: Any) -> Iterator[RemotePeer]:
    """A peer process whose queue pair is connected to `end`."""
    with RemotePeer(provider) as peer:
        peer.link(end, **attributes)
        yield peer
