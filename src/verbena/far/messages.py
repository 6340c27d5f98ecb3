"""Messages between client and memory node: JSON objects, validated by the receiver."""

from __future__ import annotations

import json
from typing import Any

from verbena.errors import VerbenaError, setup_error

ALLOCATE, ATTACH, FREE, STAT = "far.allocate", "far.attach", "far.free", "far.stat"

# The error codes of a memory node's refusals; any other exception is reported as remote_failure.
REFUSALS = frozenset({"far_full", "far_name_taken", "far_unknown"})
MAX_NAME_LENGTH = 200
MAX_NOTE_BYTES = 4096


class RequestRefused(Exception):
    """The memory node refuses a request, for a reason that the client can act on."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def encode(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def decode(payload: bytes) -> dict[str, Any]:
    """Returns the decoded object. Raises ValueError if the payload is not a JSON object."""
    try:
        fields = json.loads(payload)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def refusal(error: RequestRefused) -> bytes:
    return encode(refused=error.code, detail=error.detail)


def raise_refusal(answer: dict[str, Any], *, operation: str, peer: str) -> None:
    """Raises the error of a refusal; returns if the response is not one."""
    code = answer.get("refused")
    if code is not None:
        raise _error(str(code), str(answer.get("detail", "")), operation, peer)


def _error(code: str, detail: str, operation: str, peer: str) -> VerbenaError:
    known = code if code in REFUSALS else "bad_message"
    return setup_error(known, operation=operation, peer=peer, detail=detail)


def take_integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a number of 0 or more")
    return value


def take_name(fields: dict[str, Any]) -> str | None:
    name = fields.get("name")
    if name is None:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise ValueError(f"a name is a printable text of up to {MAX_NAME_LENGTH} characters")
    return name


def take_note(fields: dict[str, Any]) -> Any:
    """Returns the client's note, dtype and shape, for clients that attach. Raises ValueError if it is too
    long."""
    note = fields.get("note")
    if len(json.dumps(note)) > MAX_NOTE_BYTES:
        raise ValueError(f"a note is at most {MAX_NOTE_BYTES} bytes long")
    return note
