"""The operations of a session: one list, from which both forms take their documentation. The asyncio form and
the blocking form have the same names and parameters; a test compares them with this list."""

from __future__ import annotations

from typing import TypeVar

OPERATIONS = {
    "call": """Calls the peer's handler `method` and returns its result: bytes, or a value if the session has
        a codec, as the payload. The handler runs once, even if the wire changes. RemoteError if it raised,
        TimedOutError after `timeout_s` (the peer cancels the call), BrokenLinkError if the session has
        failed.""",
    "read": """Reads the peer's memory one-sided, any length. DeniedError if the region was closed or is
        another node's.""",
    "read_into": """Fills `buffer` from the start of the region, one-sided. A long transfer runs in pipelined
        fragments, each verified by CRC32C, and resumes at the acknowledged offset after a change of wire;
        `progress` is called with the number of bytes that have arrived.""",
    "write": """Writes `buffer`, of any length, at the start of the region; returns when it is in the peer's
        memory. Long ones are transferred as by read_into(). DeniedError if the region is read-only or
        closed.""",
    "read_many": """Fills `into` by many READs at once. With a region and `offsets` (a sequence of integers
        or an int64 array), the pieces have equal lengths: piece i of `into` is read from the i-th offset.
        Otherwise `remote` is a sequence of regions, read one after another. They are repeated after a change
        of wire. On an error, part of `into` may have been filled.""",
    "write_many": """Writes `buffer` by many WRITEs at once, in order. The pieces are as for read_many();
        where they overlap, the last one is what the peer's memory holds.""",
    "compare_swap": """Stores `desired` in the peer's 8 bytes if they equal `expected`; returns the previous
        value. Executed exactly once, even if the wire changes: the peer's node executes it, not its RDMA
        device.""",
    "fetch_add": """Adds `delta` to the peer's 8 bytes, modulo 2**64; returns the previous value. Executed
        exactly once.""",
    "region": """Looks up memory that the peer has published under `name`: a RemoteArray, which has dtype and
        shape, or a RemoteRegion if it was published as bytes. UnsupportedError, with the names that are
        published, if the name is none of them; DeniedError if the name is not for this session.""",
    "regions": """Returns the names of the regions that the peer publishes for this session.""",
    "pull": """Reads a whole region one-sided: a published name, or a region or part of it. Returns a new
        numpy array, or bytes if the region has no dtype; with `into` it fills that buffer of the same form,
        and returns it. A name costs a call, which looks it up; a region costs none.""",
    "watch": """Yields the version of a published name, then the latest version after every change.
        TimedOutError if `timeout_s` passes without a change; UnsupportedError when the name is
        unpublished.""",
}

C = TypeVar("C", bound=type)


def documented(form: C) -> C:
    """Sets the documentation of a form's operations. AttributeError if it lacks one."""
    for name, text in OPERATIONS.items():
        getattr(form, name).__doc__ = text
    return form
