"""Runs the installed command as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-m", "verbena.cli"]
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
    """No file in /dev/shm, and no process, may outlive the test."""
    files, children = set(os.listdir(SHARED)), _children()
    yield
    assert set(os.listdir(SHARED)) <= files
    assert _children() <= children


def _children() -> set[str]:
    own = Path("/proc/self/task")
    return {pid for task in own.iterdir() for pid in (task / "children").read_text().split()}
