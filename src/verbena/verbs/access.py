"""Access rights of memory regions."""

import enum

from verbena import _native


class Access(enum.IntFlag):
    """Access rights of a memory region, combined with |. Local reads need no right."""

    LOCAL_WRITE = _native.ACCESS_LOCAL_WRITE  # local writes by the wire: receives, and results of READs
    REMOTE_WRITE = _native.ACCESS_REMOTE_WRITE
    REMOTE_READ = _native.ACCESS_REMOTE_READ
    REMOTE_ATOMIC = _native.ACCESS_REMOTE_ATOMIC
    WINDOW = _native.ACCESS_WINDOW  # windows of the region may be bound: see pd.bind_window()
    ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
