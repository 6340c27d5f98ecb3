"""Forks at difficult moments: in the middle of calls of other threads, inside a running event loop, in a
child of a child, and shortly before the parent dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from support import program_files

from verbena import sync
from verbena.transport import Settings
from verbena.transport.failover.policy import LinkState

FORKS = program_files.SUPPORT / "forks"
TIMEOUT_S = 20.0


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_forks_in_the_middle_of_calls(wire: str, address_of: Callable[[str], str]) -> None:
    """Threads of the parent hold locks and wait for answers at the fork. Children are refused at once, use
    sessions of their own and fork too; every answer of the parent is its own."""
    printed = program_files.run([FORKS / "busy.py", address_of("peer"), wire, "20"])
    assert int(printed.split()[0]) > 20


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_forks_while_threads_connect_and_close(wire: str, address_of: Callable[[str], str]) -> None:
    """Whatever another thread was about to open or close at the fork, the child can open a session."""
    printed = program_files.run([FORKS / "connecting.py", address_of("peer"), wire, "20"])
    assert int(printed.split()[0]) > 0


def test_forks_inside_a_running_event_loop(address_of: Callable[[str], str]) -> None:
    """A child runs a loop of its own; the parent's loop goes on with its sessions and its listener."""
    printed = program_files.run([FORKS / "in_loop.py", address_of("peer")])
    assert int(printed.split()[0]) > 20


class Abandoned:
    """A service and its child, which outlives it."""

    def __init__(self, kind: str, wire: str, address: str = "127.0.0.1:0") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(FORKS / "abandoned.py"), kind, wire, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._read()
        self._child = 0

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def fork(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._child = int(self._read())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)

    @property
    def child_lives(self) -> bool:
        return os.path.exists(f"/proc/{self._child}")

    def end(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)


@pytest.fixture
def abandon() -> Iterator[Callable[..., Abandoned]]:
    made: list[Abandoned] = []

    def start(*arguments: str) -> Abandoned:
        made.append(Abandoned(*arguments))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_peers_notice_the_parents_death_although_its_child_lives(
    wire: str, abandon: Callable[..., Abandoned]
) -> None:
    """The link breaks at once, and not after the silence of `session.peer_timeout_ms`."""
    service = abandon("listener", wire)
    with sync.connect(service.address, config=Settings(wires=(wire,), peer_timeout_ms=60_000)) as session:
        assert session.call("echo", b"1", timeout_s=TIMEOUT_S) == b"1"
        service.fork()
        assert session.call("echo", b"2", timeout_s=TIMEOUT_S) == b"2"
        began = time.monotonic()
        service.kill()
        assert session.wait_for(LinkState.FAILED, TIMEOUT_S)
        assert time.monotonic() - began < TIMEOUT_S / 4
        assert service.child_lives


@pytest.mark.parametrize("kind", ["listener", "metrics", "store"])
def test_the_ports_of_a_dead_parent_are_free(kind: str, abandon: Callable[..., Abandoned]) -> None:
    """A restarted service listens where the former did, although a child of that one lives."""
    former = abandon(kind, "iwarp")
    former.fork()
    former.kill()
    assert former.child_lives
    next_one = abandon(kind, "iwarp", former.address)
    assert next_one.address == former.address
    host, _, port = former.address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S):
        pass
