"""Maps the outcomes of native sessions to exceptions."""

from __future__ import annotations

import enum

from verbena.errors import VerbenaError, completion_error, setup_error


class EventKind(enum.IntEnum):
    """src/native/transport/node/events.h"""

    FINISHED = 0
    REQUEST = 1
    CANCELLED = 2
    LINK_LOST = 3
    GOODBYE = 4


class Outcome(enum.IntEnum):
    """src/native/transport/node/events.h"""

    OK = 0
    REMOTE_FAILURE = 1
    NO_SUCH_METHOD = 2
    BUSY = 3
    DENIED = 4
    OUT_OF_RANGE = 5
    TOO_LONG = 6
    DAMAGED = 7
    FAILED_STATUS = 8
    SESSION_FAILED = 9


_CODES = {
    Outcome.REMOTE_FAILURE: "remote_failure",
    Outcome.NO_SUCH_METHOD: "no_such_method",
    Outcome.BUSY: "peer_busy",
    Outcome.DENIED: "region_denied",
    Outcome.OUT_OF_RANGE: "out_of_range",
    Outcome.TOO_LONG: "message_too_long",
    Outcome.DAMAGED: "damaged",
    Outcome.SESSION_FAILED: "session_failed",
}


def outcome_error(outcome: int, status: int, detail: str, *, operation: str, peer: str) -> VerbenaError:
    """The error for an outcome other than OK, for the caller to raise."""
    if outcome == Outcome.FAILED_STATUS:
        return completion_error(status, operation=operation, peer=peer, detail=detail or None)
    return setup_error(_CODES[Outcome(outcome)], operation=operation, peer=peer, detail=detail or None)
