"""CPU time and memory of processes, from /proc."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of all current threads of a process, in nanoseconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            total += int((task / "schedstat").read_text().split()[0])
    return total


def resident_bytes(pid: int) -> int:
    """The resident set size of a process; 0 if the kernel does not report it."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0
