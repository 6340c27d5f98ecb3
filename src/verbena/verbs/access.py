"""What may be done with a memory region."""

import enum

from verbena import _native


class Access(enum.IntFlag):
    """Rights of a memory region, to be combined with |. Reading by its owner needs none."""

    LOCAL_WRITE = (
        _native.ACCESS_LOCAL_WRITE
    )  # the wire may write for its owner: receives, and results of READs
    REMOTE_WRITE = _native.ACCESS_REMOTE_WRITE
    REMOTE_READ = _native.ACCESS_REMOTE_READ
    REMOTE_ATOMIC = _native.ACCESS_REMOTE_ATOMIC
    ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
