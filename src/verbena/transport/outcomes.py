"""Maps the outcomes of native sessions to exceptions."""

from __future__ import annotations

from verbena import _native
from verbena.errors import VerbenaError, completion_error, setup_error

EventKind = _native.transport.EventKind
Outcome = _native.transport.Outcome

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
    """Returns the error for an outcome other than OK, for the caller to raise."""
    if outcome == Outcome.FAILED_STATUS:
        return completion_error(status, operation=operation, peer=peer, detail=detail or None)
    return setup_error(_CODES[Outcome(outcome)], operation=operation, peer=peer, detail=detail or None)
