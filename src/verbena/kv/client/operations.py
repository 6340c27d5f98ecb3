"""The operations of a client of the store: one list, from which both forms take their documentation. Client
and AsyncClient have the same names and parameters; a test compares them with this list and runs both."""

from __future__ import annotations

from typing import TypeVar

OPERATIONS = {
    "get": """Returns the string at a key, read from the server's memory if possible, else by message. None:
        there is no such key.""",
    "get_into": """Reads the string at a key straight into a writable buffer, such as a numpy array. Returns
        its length, or None if there is no such key. ValueError if the buffer is too short.""",
    "mget": """Returns the strings at several keys, None for those without one, in few round trips.""",
    "set": """Stores a string, for `ex` seconds or `px` milliseconds if given. False: not stored, because of
        `nx` (only if there is no such key) or `xx` (only if there is one). `keepttl` keeps the key's
        expiry.""",
    "mset": """Stores several strings. In a cluster the keys of one slot change at once, others do not.""",
    "delete": """Deletes keys; returns how many there were.""",
    "incr": """Adds to the integer at a key, 0 if there is none; returns the sum.""",
    "execute": """Runs one command and returns its reply. CommandError: an error reply. `timeout_s` overrides
        that of the client, for commands that block; math.inf: no limit.""",
    "run": """Runs several commands in one message. Returns their replies in order; an error reply is a
        CommandError in the list.""",
    "pipeline": """Returns a pipeline, which collects commands and runs them in one message. `transaction`:
        between MULTI and EXEC.""",
    "stats": """Returns counters of this client, and the wire of its session.""",
}

C = TypeVar("C", bound=type)


def documented(form: C) -> C:
    """Sets the documentation of a form's operations. AttributeError if it lacks one."""
    for name, text in OPERATIONS.items():
        getattr(form, name).__doc__ = text
    return form
