"""Stops a process for a while: it neither answers nor ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops every thread of the process, and continues it at the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while not _is_stopped(pid):  # kill() returns before every thread has stopped
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process is in state T."""
    stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
