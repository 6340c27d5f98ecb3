"""A systemd unit of deploy/systemd: its settings, and its command under the restrictions that a process can
give itself. As a program: unit.py UNIT COMMAND… applies the restrictions and runs the command.

Applied: CapabilityBoundingSet, NoNewPrivileges, UMask, SystemCallFilter, SystemCallErrorNumber,
RestrictAddressFamilies, RestrictNamespaces, RestrictRealtime, MemoryDenyWriteExecute. Not applied: whatever
needs a mount namespace or a control group of systemd (ProtectSystem, PrivateTmp, DeviceAllow and others)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path

UNITS = sorted((Path(__file__).parents[2] / "deploy/systemd").glob("*.service"))

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL, _MASKED_EQUAL = 4, 7
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_LAST_CAPABILITY = 63


class Unit:
    """The [Service] section: each setting with its values in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings: dict[str, list[str]] = {}
        section = ""
        for line in path.read_text().splitlines():
            if line.startswith("["):
                section = line
            elif section == "[Service]" and line and not line.startswith("#"):
                name, _, value = line.partition("=")
                self.settings.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> str:
        """The last value of a setting; KeyError if the unit does not have it."""
        return self.settings[name][-1]

    def syscalls(self) -> set[str]:
        """The system calls that SystemCallFilter allows; needs systemd-analyze."""
        found = syscall_set("@default")
        for value in self.settings["SystemCallFilter"]:
            removed = value.startswith("~")
            for name in value.removeprefix("~").split():
                names = syscall_set(name) if name.startswith("@") else {name}
                found = found - names if removed else found | names
        return found


def syscall_set(name: str) -> set[str]:
    """The system calls of one of systemd's sets, with those of the sets in it."""
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    words = [line.strip() for line in done.stdout.splitlines()[1:] if not line.strip().startswith("#")]
    found: set[str] = set()
    for word in filter(None, words):
        found |= syscall_set(word) if word.startswith("@") else {word}
    return found


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _Filter:
    """A seccomp filter, made with libseccomp. OSError: libseccomp is not installed."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._library.seccomp_init.argtypes = [ctypes.c_uint32]
        add = self._library.seccomp_rule_add_array
        add.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.POINTER(_Comparison),
        ]
        self._library.seccomp_load.argtypes = [ctypes.c_void_p]
        self._context = self._library.seccomp_init(default)

    def add(self, action: int, name: str, *comparisons: tuple[int, int, int, int]) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return  # not a system call of this architecture
        given = (_Comparison * max(len(comparisons), 1))(*(_Comparison(*row) for row in comparisons))
        result = self._library.seccomp_rule_add_array(self._context, action, number, len(comparisons), given)
        if result not in (0, -errno.EACCES):  # EACCES: the action is the filter's default
            raise OSError(-result, f"seccomp_rule_add {name}")

    def load(self) -> None:
        if result := self._library.seccomp_load(self._context):
            raise OSError(-result, "seccomp_load")


def restrict(unit: Unit) -> None:
    """Applies the restrictions to this process and to its children, for good. Raises OSError."""
    os.umask(int(unit["UMask"], 8))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert unit["CapabilityBoundingSet"] == ""
    for capability in range(_LAST_CAPABILITY + 1):
        prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    assert unit["NoNewPrivileges"] == "true"
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    refuse = _ERRNO | getattr(errno, unit["SystemCallErrorNumber"])
    allowed = unit.syscalls()
    special = _Filter(_ALLOW)
    families = {int(getattr(socket, name)) for name in unit["RestrictAddressFamilies"].split()}
    for family in range(64):
        if family not in families:
            special.add(_ERRNO | errno.EAFNOSUPPORT, "socket", (0, _EQUAL, family, 0))
    if unit["MemoryDenyWriteExecute"] == "true":
        both = mmap.PROT_WRITE | mmap.PROT_EXEC
        special.add(_ERRNO | errno.EPERM, "mmap", (2, _MASKED_EQUAL, both, both))
        for name in ("mprotect", "pkey_mprotect"):
            special.add(_ERRNO | errno.EPERM, name, (2, _MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
    if unit["RestrictNamespaces"] == "true":
        special.add(_ERRNO | errno.ENOSYS, "clone3")
        special.add(_ERRNO | errno.EPERM, "unshare")
        special.add(_ERRNO | errno.EPERM, "setns")
    if unit["RestrictRealtime"] == "true":
        for policy in (os.SCHED_FIFO, os.SCHED_RR):
            special.add(_ERRNO | errno.EPERM, "sched_setscheduler", (1, _EQUAL, policy, 0))
    calls = _Filter(refuse)
    for name in sorted(allowed):
        calls.add(_ALLOW, name)
    special.load()
    calls.load()


if __name__ == "__main__":
    restrict(Unit(Path(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
