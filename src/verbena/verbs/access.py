"""What may be done with a memory region."""

import enum


class Access(enum.IntFlag):
    """Rights of a memory region, to be combined with |. Reading by its owner needs none."""

    LOCAL_WRITE = 1  # the wire may write into it for its owner: receives, and results of READs
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    ALL = 15
