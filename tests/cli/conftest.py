"""Runs the installed command in a separate process, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.rdma.link import wait_until

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-m", "verbena"]
SHARED = Path("/dev/shm")


@pytest.fixture
def verbena() -> Run:
    """Runs `verbena ARGUMENTS…`; `status` is the exit status that it must have."""

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Checks that no file in /dev/shm and no process remains after the test."""
    files, children = set(os.listdir(SHARED)), _children()
    yield
    wait_until(  # tests of other processes may make semaphores, which have a name for a moment
        lambda: set(os.listdir(SHARED)) <= files, "files in /dev/shm to be removed"
    )
    assert _children() <= children


def _children() -> set[str]:
    own = Path("/proc/self/task")
    return {pid for task in own.iterdir() for pid in (task / "children").read_text().split()}


SECRET = "correct horse battery staple"
QUICK = {
    "VERBENA_SESSION_SECRET": SECRET,
    "VERBENA_SESSION_UPGRADE_DELAY_MS": "50",
    "VERBENA_SESSION_UPGRADE_DELAY_MAX_MS": "200",
    "VERBENA_NETWORK_RDMA_CONNECTION_RETRIES": "1",
    "VERBENA_NETWORK_RDMA_RETRY_DELAY_MS": "20",
    "VERBENA_NETWORK_RDMA_RECV_BUFFER_POOL_SIZE": "256",
}
NODE = Path(__file__).parents[1] / "support/node_main.py"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a secret and short session delays for this process and its children."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def start_node(quick: None) -> Iterator[Callable[..., str]]:
    """Starts a node in a separate process, with additional variables, and returns its address."""
    started: list[subprocess.Popen[str]] = []

    def start(**variables: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(NODE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the node did not start"
        return address

    yield start
    for process in started:
        process.communicate(timeout=30)
        assert process.returncode == 0
