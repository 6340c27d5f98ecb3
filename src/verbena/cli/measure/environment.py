"""The environment of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path


def describe() -> dict[str, object]:
    """Returns versions, machine and, in a git tree, the commit, so that runs can be compared."""
    return {
        "versions": {
            "verbena": _version("verbena"),
            "python": platform.python_version(),
            "numpy": _version("numpy"),
            "kernel": ".".join(platform.release().split(".")[:2]),
        },
        "machine": {
            "architecture": platform.machine(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "commit": commit(),
    }


def commit() -> str | None:
    """Returns the commit of the current directory's git tree, with "+" if the tree has changes; None outside
    a tree."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return f"{head}+" if head and _git("status", "--porcelain") else head


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=True, cwd=Path.cwd()
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
