"""Whether this process is in a container: then modules and limits of the kernel are the host's."""

from __future__ import annotations

import re

from verbena.cli.checks.diagnosis import Roots, text_of

_MARKS = ("run/.containerenv", ".dockerenv", "run/systemd/container")
_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|crio|/lxc")
_FIRST_PID = re.compile(r"^.* \((\d+), #threads")


def in_container(roots: Roots) -> bool:
    """Looks for the files of container managers, their names in the cgroup of process 1, and a process 1 that
    has another number in the host."""
    if any((roots.root / mark).exists() for mark in _MARKS):
        return True
    if _CGROUP.search(text_of(roots.proc / "1/cgroup")):
        return True
    first = _FIRST_PID.match(text_of(roots.proc / "1/sched"))
    return first is not None and first[1] != "1"


def on_host(command: str, roots: Roots) -> str:
    """Returns a command that changes the kernel; in a container, with the note that the host runs it."""
    return f"on the host: {command}" if in_container(roots) else command
