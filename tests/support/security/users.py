"""Acting as another user in a process that has imported all that it needs."""

from __future__ import annotations

# ruff: noqa: F401  # imported on demand otherwise, when their folders cannot be read any longer
import concurrent.futures.thread
import ctypes
import encodings.idna
import os

PR_SET_DUMPABLE = 4
USER, OTHER_USER = 12_345, 12_346  # of no account


def become(uid: int | None) -> None:
    """Gives up all rights but those of this user. The process may be traced, as one that was started by the
    user may be."""
    if uid is None:
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
