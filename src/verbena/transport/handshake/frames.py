"""The frames of the handshake: magic, type, length and one JSON object with exactly the known fields.
Only the canonical encoding is accepted (sorted keys, no spaces, ASCII), so that every changed byte is
detected and a frame holds nothing that a parser would ignore."""

from __future__ import annotations

import enum
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from verbena.errors import VerbenaError, setup_error

MAGIC = b"VRBN"
MAX_BODY_BYTES = 16 * 1024
MAX_WIRES = 16
NONCE_BYTES = KEY_BYTES = PROOF_BYTES = 32
MAX_REASON = 200
MAX_PROCESS = 64

_HEADER = struct.Struct("!4sBI")
assert _HEADER.size == 9

Fields = dict[str, Any]
Check = Callable[[Any], bool]


class FrameType(enum.IntEnum):
    HELLO = 1  # from the client; the same fields in every version, since it negotiates the version
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    ALIVE = 5  # in place of WELCOME for a probe
    REFUSAL = 6


AUTH_METHODS = ("none", "secret", "tls")
PURPOSES = ("open", "probe")


def is_name(value: Any) -> bool:
    """Returns whether it is a valid name of a node or a wire: 1 to 64 letters, digits and ._:/@+-"""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._:/@+-]{1,64}", value) is not None


def _number(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high  # type(): a bool is an int too


def _hex(*lengths_bytes: int) -> Check:
    allowed = {2 * length for length in lengths_bytes}
    return lambda value: (
        isinstance(value, str) and len(value) in allowed and not value.strip("0123456789abcdef")
    )


def _one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def _text(most: int, *, least: int = 0) -> Check:
    # Printable, since it is shown in terminals and logs.
    return lambda value: isinstance(value, str) and least <= len(value) <= most and value.isprintable()


def _list(check: Check, *, least: int, most: int, key: Callable[[Any], object] = lambda item: item) -> Check:
    def valid(value: Any) -> bool:
        well = isinstance(value, list) and least <= len(value) <= most and all(map(check, value))
        return well and len({key(item) for item in value}) == len(value)  # no duplicates

    return valid


def _is_wire_offer(value: Any) -> bool:
    known = isinstance(value, dict) and value.keys() == {"name", "address"}
    return known and is_name(value["name"]) and _text(256, least=1)(value["address"])


_U64 = _number(0, 2**64 - 1)
_NONCE = _hex(NONCE_BYTES)
_PROOF = _hex(PROOF_BYTES)

FIELDS: Mapping[FrameType, Mapping[str, Check]] = {
    FrameType.HELLO: {
        "versions": _list(_number(1, 255), least=1, most=16),
        "purpose": _one_of(*PURPOSES),
        "node": is_name,
        "boot_epoch": _U64,
        "host": _hex(32),
        "nonce": _NONCE,
        "wires": _list(is_name, least=0, most=MAX_WIRES),
    },
    FrameType.CHALLENGE: {
        "version": _number(1, 255),
        "node": is_name,
        "boot_epoch": _U64,
        "host": _hex(32),
        "nonce": _NONCE,
        "auth": _one_of(*AUTH_METHODS),
    },
    FrameType.PROOF: {"proof": _PROOF, "process": _text(MAX_PROCESS)},
    FrameType.WELCOME: {
        "proof": _PROOF,
        "session_id": _number(1, 2**64 - 1),
        "same_host": lambda value: isinstance(value, bool),
        "wires": _list(_is_wire_offer, least=1, most=MAX_WIRES, key=lambda wire: wire["name"]),
        "window": _number(1, 2**16 - 1),
        "max_message_bytes": _number(1, 2**63 - 1),
        "resume_timeout_ms": _number(0, 2**32 - 1),
        "key": _hex(0, KEY_BYTES),  # empty outside TLS
        "process": _text(MAX_PROCESS),
    },
    FrameType.ALIVE: {"proof": _PROOF},
    FrameType.REFUSAL: {"code": _text(32), "reason": _text(MAX_REASON)},
}


def encode(kind: FrameType, fields: Fields) -> bytes:
    """Returns the frame with these fields. invalid_argument if a FrameReader would not accept it."""
    wrong = _wrong_field(kind, fields)
    if wrong is None:
        body = _canonical(fields)
        if len(body) <= MAX_BODY_BYTES:
            return _HEADER.pack(MAGIC, kind, len(body)) + body
        wrong = f"{len(body)} bytes are more than {MAX_BODY_BYTES}"
    raise setup_error("invalid_argument", operation=f"write {kind.name}", detail=wrong)


class FrameReader:
    """Splits a byte stream into frames. Each part of a header is checked as soon as it has arrived."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[FrameType, Fields, bytes]]:
        """Yields type, fields and raw bytes of each complete frame. bad_message for invalid data."""
        self._buffer += data
        while frame := self._next():
            yield frame

    @property
    def empty(self) -> bool:
        """Whether no byte of another frame is buffered."""
        return not self._buffer

    def _next(self) -> tuple[FrameType, Fields, bytes] | None:
        buffer = self._buffer
        if buffer[:4] != MAGIC[: len(buffer)]:
            raise bad_message(_guess(bytes(buffer[:8])))
        if len(buffer) > 4 and buffer[4] not in FrameType._value2member_map_:
            raise bad_message(f"frame type {buffer[4]} does not exist")
        if len(buffer) < _HEADER.size:
            return None
        _, number, length = _HEADER.unpack_from(buffer)
        if length > MAX_BODY_BYTES:
            raise bad_message(f"a frame of {length} bytes, where {MAX_BODY_BYTES} are the most")
        end = _HEADER.size + length
        if len(buffer) < end:
            return None
        raw = bytes(buffer[:end])
        del buffer[:end]
        kind = FrameType(number)
        return kind, _decode(kind, raw[_HEADER.size :]), raw


def bad_message(detail: str) -> VerbenaError:
    """Returns the error for invalid data from the peer."""
    return setup_error("bad_message", operation="hello", detail=detail)


def _decode(kind: FrameType, body: bytes) -> Fields:
    try:
        fields = json.loads(body.decode("ascii"))
        spelt_well = _canonical(fields) == body
    except (ValueError, RecursionError) as error:
        raise bad_message(f"{kind.name} is not JSON") from error
    wrong = _wrong_field(kind, fields) if spelt_well else "not in its one spelling"
    if wrong is not None:
        raise bad_message(f"{kind.name}: {wrong}")
    checked: Fields = fields
    return checked


def _canonical(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")


def _wrong_field(kind: FrameType, fields: object) -> str | None:
    known = FIELDS[kind]
    if not isinstance(fields, dict) or fields.keys() != known.keys():
        return f"its fields must be exactly {', '.join(known)}"
    return next((f"{name!r} is not valid" for name, check in known.items() if not check(fields[name])), None)


def _guess(start: bytes) -> str:
    if start[:1] in (b"\x15", b"\x16") and start[1:2] in (b"\x03", b""):
        return "the other end speaks TLS, and this end does not"
    return f"it starts with {start!r}, not {MAGIC!r}"
