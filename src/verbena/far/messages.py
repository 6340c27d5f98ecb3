"""What a memory node is asked and what it answers: JSON objects, checked at the end that receives them."""

from __future__ import annotations

import json
from typing import Any

from verbena.errors import VerbenaError, setup_error

ALLOCATE, ATTACH, FREE, STAT = "far.allocate", "far.attach", "far.free", "far.stat"

# The error codes with which a memory node refuses a request; any other exception is remote_failure.
REFUSALS = frozenset({"far_full", "far_name_taken", "far_unknown"})
LONGEST_NAME = 200
LONGEST_NOTE = 4096


class Refusal(Exception):
    """The answer is no, for a reason that the asker can do something about."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def encode(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def decode(payload: bytes) -> dict[str, Any]:
    """The object; ValueError if it is none."""
    fields = json.loads(payload)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def refusal(error: Refusal) -> bytes:
    return encode(refused=error.code, detail=error.detail)


def raise_refusal(answer: dict[str, Any], *, operation: str, peer: str) -> None:
    """Raises what the answer refuses, if it does."""
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
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a name is a printable text of up to {LONGEST_NAME} letters")
    return name


def take_note(fields: dict[str, Any]) -> Any:
    """What the client wants to have told to those who attach: its dtype and shape."""
    note = fields.get("note")
    if len(json.dumps(note)) > LONGEST_NOTE:
        raise ValueError(f"a note is at most {LONGEST_NOTE} bytes long")
    return note
