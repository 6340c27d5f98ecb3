"""Reports at once when the process of a peer on this host has ended. A pidfd becomes readable when its
process has ended, in whatever way, and not while it is stopped or its sockets are closed. There is one pidfd
for each process, whatever the number of its sessions. All functions run on the control thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from verbena import _native

OnExit = Callable[[], None]


def own_process() -> str:
    """Returns the name of this process for peers on this host: the inode of its PID namespace and its PID.
    Empty if the kernel does not report the namespace."""
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino}/{os.getpid()}"
    except OSError:
        return ""


class ExitWatch:
    """Calls `on_exit` once when the peer's process has ended, and never after close(). Does nothing if the
    peer is this process, is in another PID namespace or is unknown, or the kernel has no pidfds.

    `process` is what the peer has sent. A false one can only end, or keep, the peer's own session.
    `boot_epoch` distinguishes a process from a later one with the same PID."""

    def __init__(self, process: str, boot_epoch: int, on_exit: OnExit) -> None:
        self._on_exit: OnExit | None = on_exit
        self._watched: _Process | None = None
        pid = _pid_of(process)
        if pid is None:
            return
        try:
            self._watched = _watch(pid, boot_epoch)
        except ProcessLookupError:  # it has ended since it sent this
            asyncio.get_running_loop().call_soon(self._report)
        except OSError:
            return
        else:
            self._watched.watches.add(self)

    @property
    def is_active(self) -> bool:
        return self._watched is not None

    def close(self) -> None:
        self._on_exit = None
        if self._watched is not None:
            self._watched.watches.discard(self)
            if not self._watched.watches:
                self._watched.close()
            self._watched = None

    def _report(self) -> None:
        on_exit = self._on_exit
        self.close()
        if on_exit is not None:
            on_exit()


@dataclass(eq=False)
class _Process:
    """A process with the sessions that watch it."""

    key: tuple[int, int]  # its PID and boot epoch
    pidfd: int
    loop: asyncio.AbstractEventLoop
    watches: set[ExitWatch] = field(default_factory=set)

    def report_exit(self) -> None:
        self.loop.remove_reader(self.pidfd)  # at once: a watch may be closed in a later turn of the loop
        for watch in list(self.watches):
            watch._report()

    def close(self) -> None:
        del _processes[self.key]
        self.loop.remove_reader(self.pidfd)
        os.close(self.pidfd)


_processes: dict[tuple[int, int], _Process] = {}


def _watch(pid: int, boot_epoch: int) -> _Process:
    key = (pid, boot_epoch)
    if key not in _processes:
        loop = asyncio.get_running_loop()
        watched = _Process(key, _native.transport.open_pidfd(pid), loop)
        try:
            loop.add_reader(watched.pidfd, watched.report_exit)
        except BaseException:
            os.close(watched.pidfd)
            raise
        _processes[key] = watched
    return _processes[key]


def _pid_of(process: str) -> int | None:
    """Returns the PID of a process that can be watched."""
    namespace, _, pid = process.partition("/")
    own_namespace, _, own_pid = own_process().partition("/")
    if not namespace or namespace != own_namespace or pid == own_pid:
        return None
    # The kernel's PIDs have at most seven digits.
    return int(pid) if pid.isascii() and pid.isdecimal() and len(pid) <= 9 else None


def _forget_after_fork() -> None:
    for watched in _processes.values():
        with contextlib.suppress(OSError):
            os.close(watched.pidfd)
    _processes.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
