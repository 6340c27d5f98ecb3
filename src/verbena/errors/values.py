"""This machine's values for the `{fields}` in the texts of the error table."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path


def values_here(code: str) -> dict[str, str]:
    """The current values of this process and machine for the fields in the texts of `code`."""
    read = _VALUES.get(code)
    return read() if read else {}


def _memlock() -> dict[str, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    status = proc_fields(_text("/proc/self/status"))
    return {
        "memlock_soft": _size(soft),
        "memlock_hard": _size(hard),
        "locked": status.get("VmLck", "unknown"),
        "pinned": status.get("VmPin", "unknown"),
    }


def _huge_pages() -> dict[str, str]:
    names = {"huge_free": "HugePages_Free", "huge_total": "HugePages_Total", "huge_size": "Hugepagesize"}
    meminfo = proc_fields(_text("/proc/meminfo"))
    return {field: meminfo.get(name, "unknown") for field, name in names.items()}


def _nofile() -> dict[str, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {"nofile_soft": _count(soft), "nofile_hard": _count(hard)}


def _ptrace() -> dict[str, str]:
    return {"ptrace_scope": _text("/proc/sys/kernel/yama/ptrace_scope").strip() or "not set"}


_VALUES: Mapping[str, Callable[[], dict[str, str]]] = {
    "memlock": _memlock,
    "huge_pages": _huge_pages,
    "fd_limit": _nofile,
    "not_permitted": _ptrace,
    "credentials": lambda: {"uid": str(os.getuid())},
}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # Reading fails without free descriptors, and fd_limit must still be explained.
        return ""


def proc_fields(text: str) -> dict[str, str]:
    """Parses `name: value` lines, as in /proc/meminfo and /proc/self/status. The unit kB becomes KiB."""
    rows = (line.partition(":") for line in text.splitlines())
    return {name: value.strip().replace(" kB", " KiB") for name, _, value in rows}


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _size(limit_bytes: int) -> str:
    if limit_bytes == resource.RLIM_INFINITY:
        return "unlimited"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if limit_bytes and limit_bytes % (1 << shift) == 0:
            return f"{limit_bytes >> shift} {unit}"
    return f"{limit_bytes} bytes"
