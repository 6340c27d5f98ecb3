"""What processes of this host use, as the kernel counts it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of all running threads of a process, without the time of other processes on its processors."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            total += int((task / "schedstat").read_text().split()[0])
    return total


def resident_bytes(pid: int) -> int:
    """The resident set of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0
