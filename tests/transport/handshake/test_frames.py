"""The frames of the hello: truncated, oversized, malformed, and every field with invalid values."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from verbena import errors
from verbena.errors import VerbenaError
from verbena.transport.handshake.frames import FIELDS, MAX_BODY_BYTES, FrameReader, FrameType, encode

GOOD: dict[FrameType, dict[str, Any]] = {
    FrameType.HELLO: {
        "versions": [1],
        "purpose": "open",
        "node": "anna",
        "boot_epoch": 2**64 - 1,
        "host": "00" * 32,
        "nonce": "ff" * 32,
        "wires": ["shm", "faulty:iwarp"],
    },
    FrameType.CHALLENGE: {
        "version": 1,
        "node": "bert",
        "boot_epoch": 0,
        "host": "00" * 32,
        "nonce": "ff" * 32,
        "auth": "secret",
    },
    FrameType.PROOF: {"proof": "00" * 32, "process": "4026531836/77"},
    FrameType.WELCOME: {
        "proof": "00" * 32,
        "session_id": 2**64 - 1,
        "same_host": True,
        "wires": [{"name": "shm", "address": "Grüße"}],
        "window": 65535,
        "max_message_bytes": 2**63 - 1,
        "resume_timeout_ms": 0,
        "key": "",
        "process": "",
    },
    FrameType.ALIVE: {"proof": "00" * 32},
    FrameType.REFUSAL: {"code": "rejected", "reason": "no"},
}


def refused(act: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(VerbenaError) as caught:
        act(*arguments)
    return caught.value.code


def read(data: bytes) -> list[tuple[FrameType, dict[str, Any], bytes]]:
    return list(FrameReader().feed(data))


def body(kind: FrameType, text: bytes) -> bytes:
    return struct.pack("!4sBI", b"VRBN", kind, len(text)) + text


@pytest.mark.parametrize("kind", FrameType)
def test_a_frame_decodes_as_encoded_and_a_truncated_one_waits_for_more(kind: FrameType) -> None:
    """A frame decodes to what was encoded. Truncated anywhere, also in its header, it is waited for."""
    frame = encode(kind, GOOD[kind])
    assert frame[:9] == struct.pack("!4sBI", b"VRBN", kind, len(frame) - 9)
    for length in range(len(frame)):
        reader = FrameReader()
        assert list(reader.feed(frame[:length])) == []
        assert list(reader.feed(frame[length:])) == [(kind, GOOD[kind], frame)]
        assert reader.empty


def test_frames_may_come_together() -> None:
    whole = [encode(kind, GOOD[kind]) for kind in FrameType]
    assert [raw for _, _, raw in read(b"".join(whole))] == whole


@pytest.mark.parametrize("kind", FrameType)
def test_an_oversized_frame_is_refused_by_its_header(kind: FrameType) -> None:
    """It is refused before a byte of its body has arrived, so no peer can make an end hold more than one
    frame."""
    for length in (MAX_BODY_BYTES + 1, 2**31, 2**32 - 1):
        header = struct.pack("!4sBI", b"VRBN", kind, length)
        assert refused(read, header) == "bad_message"
    assert read(struct.pack("!4sBI", b"VRBN", kind, MAX_BODY_BYTES)) == []


@pytest.mark.parametrize("kind", [0, 7, 255])
def test_a_frame_type_that_does_not_exist_is_refused_at_once(kind: int) -> None:
    assert refused(read, b"VRBN" + bytes([kind])) == "bad_message"


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "GET / HT"),
        (b"V", ""),
        (b"VRBM", "VRBM"),
        (b"\x16\x03\x01\x02", "speaks TLS"),
        (b"\x15\x03\x03\x00", "speaks TLS"),
        (b"\x00", "starts with"),
    ],
)
def test_another_protocol_is_recognised_by_its_first_bytes(start: bytes, words: str) -> None:
    if start == b"V":
        assert read(start) == []
        return
    with pytest.raises(errors.ProtocolError, match=words):
        read(start)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'"proof"',
        b"\xff\xfe",
        b"[" * 8000 + b"]" * 8000,
        b'{"proof":' + b"9" * 5000 + b"}",
        b'{"proof": "' + b"0" * 64 + b'"}',
        b'{"proof":"' + b"A" * 64 + b'"}',
        b'{"proof":"' + b"0" * 62 + b'"}',
        b'{"proof":"' + b"0" * 64 + b'","proof":"' + b"0" * 64 + b'"}',
        b'{"proof":"' + b"0" * 64 + b'","more":1}',
        b'{"proof":"\\u0030' + b"0" * 63 + b'"}',
        b'{"proof":NaN}',
        b'{"proof":1e999}',
        b'{"proof":null}',
    ],
)
def test_a_body_must_be_json_in_its_one_spelling(text: bytes) -> None:
    assert refused(read, body(FrameType.ALIVE, text)) == "bad_message"
    good = b'{"proof":"' + b"0" * 64 + b'"}'
    assert [fields for _, fields, _ in FrameReader().feed(body(FrameType.ALIVE, good))] == [
        {"proof": "0" * 64}
    ]


WRONG: dict[str, list[Any]] = {
    "versions": [[], [0], [256], [1.0], [True], "1", [1, 1], list(range(1, 18)), [[1]], None],
    "version": [0, 256, True, "1", None],
    "purpose": ["", "close", None, 1, ["open"]],
    "node": ["", "a b", "a\n", "ä", "x" * 65, None, 3],
    "boot_epoch": [-1, 2**64, 1.5, "1", True, None],
    "host": ["", "00" * 31, "00" * 33, "zz" * 32, None, 0],
    "nonce": ["", "00" * 31, "00" * 33, "AA" * 32, None, 0],
    "auth": ["", "basic", None, 1],
    "proof": ["", "00" * 31, None, 1],
    "session_id": [0, -1, 2**64, True, "1", None],
    "same_host": [0, 1, "true", None],
    "window": [0, -1, 2**16, True, 1.0, None],
    "max_message_bytes": [0, -1, 2**63, True, None],
    "resume_timeout_ms": [-1, 2**32, 1.5, True, None],
    "key": ["00", "00" * 31, None, 0],
    "process": ["x" * 65, "1/2\n", None, 12],
    "code": ["x" * 33, "a\n", None, 1],
    "reason": ["x" * 201, "\x1b[31m", "\ud800", None, 1],
}
WRONG_WIRES = [None, "shm", {}, [""], ["shm", "shm"], [f"w{n}" for n in range(17)], [1], [None]]
WRONG_OFFERS = [
    [],
    ["shm"],
    [{"name": "shm"}],
    [{"name": "shm", "address": ""}],
    [{"name": "shm", "address": "x" * 257}],
    [{"name": "shm", "address": "a\n"}],
    [{"name": "", "address": "a"}],
    [{"name": "shm", "address": "a", "port": 1}],
    [{"name": "shm", "address": "a"}, {"name": "shm", "address": "b"}],
    [{"name": f"w{number}", "address": "a"} for number in range(17)],
]


@pytest.mark.parametrize("kind", FrameType)
def test_every_field_is_typed_and_bounded(kind: FrameType) -> None:
    """A missing field, an additional one and each kind of wrong value are refused on reading and on
    writing."""
    good = GOOD[kind]
    assert good.keys() == FIELDS[kind].keys()
    variants = [{**good, "more": 1}, *({n: v for n, v in good.items() if n != name} for name in good)]
    for name in good:
        wires = WRONG_OFFERS if kind is FrameType.WELCOME else WRONG_WIRES
        variants += [{**good, name: value} for value in (wires if name == "wires" else WRONG[name])]
    for fields in variants:
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        assert refused(read, body(kind, text)) == "bad_message", fields
        assert refused(encode, kind, fields) == "invalid_argument", fields
