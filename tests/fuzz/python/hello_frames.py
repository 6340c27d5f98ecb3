"""The frames of the hello: any bytes, and frames whose fields, spelling and length a script chooses."""

from __future__ import annotations

import json
import struct
from typing import Any

from fuzz.python.script import Input, bounded_memory, require

from verbena.errors import VerbenaError
from verbena.transport.handshake.frames import MAX_BODY_BYTES, FrameReader, FrameType, encode

# An end holds one frame at once. Parsed, JSON takes up to 65 bytes for each of its own, as measured; other
# versions of Python differ.
MEMORY_BYTES = 128 * MAX_BODY_BYTES

WIRES = [{"name": "shm", "address": "verbena-7"}, {"name": "iwarp", "address": "10.0.0.2:7001"}]
GOOD: dict[FrameType, dict[str, Any]] = {
    FrameType.HELLO: {
        "versions": [1],
        "purpose": "open",
        "node": "anna",
        "boot_epoch": 2**64 - 1,
        "host": "00" * 32,
        "nonce": "ff" * 32,
        "wires": ["shm", "iwarp"],
    },
    FrameType.CHALLENGE: {
        "version": 1,
        "node": "bert",
        "boot_epoch": 0,
        "host": "00" * 32,
        "nonce": "ff" * 32,
        "auth": "none",
    },
    FrameType.PROOF: {"proof": "00" * 32, "process": "40/1"},
    FrameType.WELCOME: {
        "proof": "00" * 32,
        "session_id": 7,
        "same_host": True,
        "wires": WIRES,
        "window": 64,
        "max_message_bytes": 2**31,
        "resume_timeout_ms": 30_500,
        "key": "",
        "process": "",
    },
    FrameType.ALIVE: {"proof": "00" * 32},
    FrameType.REFUSAL: {"code": "rejected", "reason": "no"},
}
KINDS = tuple(FrameType)

# Values that some field accepts, or that a careless check would accept.
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 255, 2**16, 2**63, 2**64, 1.0, 1e300, float("nan"), float("inf")),
    *("", "none", "secret", "tls", "probe", "bert", "1/2\n", "\x1b[31m", "\ud800", "\U0001f600" * 64),
    *("x" * 65, "00" * 32, "11" * 32, "ff" * 31, "\u0660" * 64, "\xff" * 200),
    *([], [1], [1, 2], [1, 1], [True], [[1]], ["shm"], ["shm", "shm"], ["tcp"], [None], {}, {"name": "shm"}),
    *([2], 2, [{"name": "tcp", "address": "a"}]),
    *([wire] for wire in WIRES),
    [*WIRES, *WIRES],
    [{"name": "shm", "address": ""}],
    [{"name": f"w{number}", "address": "a"} for number in range(17)],
)
OWN_TEXT, OWN_NUMBER = 240, 248  # from this byte on, the script has the value itself


def changed_fields(script: Input, kind: FrameType) -> dict[str, Any]:
    """The fields of a good frame, up to three of them replaced, added or removed."""
    fields = dict(GOOD[kind])
    for _ in range(script.byte() % 4):
        which = script.byte()
        name = "more" if which == 255 else FIELD_ORDER[kind][which % len(GOOD[kind])]
        value = script.byte()
        if value == 255:
            fields.pop(name, None)
        elif value >= OWN_NUMBER:
            fields[name] = script.number(8)
        elif value >= OWN_TEXT:
            fields[name] = script.take(script.byte()).decode("latin-1")
        else:
            fields[name] = VALUES[value % len(VALUES)]
    return fields


FIELD_ORDER = {kind: tuple(fields) for kind, fields in GOOD.items()}


def spelt(fields: dict[str, Any], how: int) -> bytes:
    """As JSON: in its one spelling, or in another."""
    if how == 1:
        return json.dumps(fields).encode()
    if how == 2:
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def framed(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack("!4sBI", b"VRBN", kind, len(body) if length is None else length) + body


def own_frame(script: Input) -> bytes:
    """A frame with changed fields; its type or length may not be those of the body."""
    kind = KINDS[script.byte() % len(KINDS)]
    fields = changed_fields(script, kind)
    how = script.byte()
    if how >= 250:
        return framed(script.byte(), spelt(fields, 0))
    return framed(kind, spelt(fields, how), script.number(4) if how >= 240 else None)


def check_frames(script: Input) -> str:
    """A stream of frames gives the same frames and the same error however it is cut; a frame is what encode()
    makes of its fields; nothing but bad_message is raised, and no more than a frame is kept."""
    step = 1 + script.byte()
    data = b""
    while script.byte() % 2 and not script.empty:
        data += own_frame(script)
    data += script.rest()
    with bounded_memory(MEMORY_BYTES + len(data)):
        frames, error = read([data])
        again = read([data[at : at + step] for at in range(0, len(data), step)])
    require((frames, error) == again, "a stream gives the same frames however it is cut")
    for kind, fields, raw in frames:
        require(encode(kind, fields) == raw, "a frame is what encode() makes of its fields")
    require(error in ("", "bad_message"), f"{error} is bad_message")
    return " ".join(["frames:", *(kind.name for kind, _, _ in frames), error]).strip()


def read(pieces: list[bytes]) -> tuple[list[tuple[FrameType, dict[str, Any], bytes]], str]:
    """The frames of a stream that arrives in these pieces, and the code of the error that ends it."""
    reader, frames = FrameReader(), []
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                frames.append(frame)
    except VerbenaError as error:
        require(error.detail.isprintable(), "an error can be shown")
        return frames, error.code
    return frames, ""
