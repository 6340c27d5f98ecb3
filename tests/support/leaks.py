"""Resources that a process holds (descriptors, mappings, memory), and files that it left behind."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    gc.collect()
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leftovers() -> set[str]:
    """Verbena's entries in the folders of shared memory, sockets and temporary files."""
    temporary = tempfile.gettempdir()
    places = {"/dev/shm", "/run", temporary, os.environ.get("XDG_RUNTIME_DIR", temporary)}
    return {
        str(entry)
        for place in places
        if os.path.isdir(place)
        for entry in Path(place).iterdir()
        if "verbena" in entry.name.lower()
    }
