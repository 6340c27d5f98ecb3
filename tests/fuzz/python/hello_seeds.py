"""The scripts with which fuzzing of the hello begins, by name: tests/fuzz/corpus/hello."""

from __future__ import annotations

from fuzz.python import hello_ends as ends
from fuzz.python.hello import (
    PARTS,
    check_end,
    check_first_bytes,
    check_frames,
    check_signed_token,
    check_token,
)
from fuzz.python.hello_frames import FIELD_ORDER, GOOD, KINDS, VALUES, framed

from verbena.transport.handshake.frames import FrameType, encode
from verbena.transport.handshake.link_token import LinkRefusal, LinkRefusalReason

NONE, SECRET, TLS = 0, 1, 2
WHOLE = [ends.HONEST, ends.HONEST]


def _seed(part: object, *script: int | bytes) -> bytes:
    """The index of the part, and its script: bytes, and numbers of one byte."""
    return b"".join(
        item if isinstance(item, bytes) else bytes([item]) for item in (PARTS.index(part), *script)
    )


def _frames(data: bytes) -> bytes:
    return _seed(check_frames, 255, 0, data)


def _change(kind: FrameType, name: str, value: object) -> tuple[int, ...]:
    """One replaced field of a frame of this type."""
    return 1, FIELD_ORDER[kind].index(name), VALUES.index(value)


def _own(kind: FrameType, name: str, value: object) -> tuple[int, ...]:
    """A frame of the peer with one replaced field."""
    return ends.OWN, KINDS.index(kind), *_change(kind, name, value), 0


def _records(message: bytes, size: int) -> bytes:
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def _client_hello(*protocols: bytes) -> bytes:
    """A ClientHello of TLS 1.3 (RFC 8446) with these protocols (RFC 7301)."""
    names = b"".join(bytes([len(name)]) + name for name in protocols)
    alpn = len(names).to_bytes(2, "big") + names
    extensions = b"\x00\x2b\x00\x03\x02\x03\x04" + b"\x00\x10" + len(alpn).to_bytes(2, "big") + alpn
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    return b"\x01" + len(body).to_bytes(3, "big") + body


LINK_ALPN = b"verbena-iwarp/1"
SEEDS = {
    "frames-of-every-type": _frames(b"".join(encode(kind, GOOD[kind]) for kind in KINDS)),
    "frames-of-tls": _frames(_records(_client_hello(), 512)),
    "a-frame-with-a-changed-field": _seed(
        check_frames,
        6,
        1,
        KINDS.index(FrameType.REFUSAL),
        *_change(FrameType.REFUSAL, "reason", "\ud800"),
        0,
        0,
    ),
    "a-frame-that-is-nested": _frames(framed(FrameType.ALIVE, b"[" * 2000 + b"]" * 2000)),
    "a-header-that-is-too-long": _frames(framed(FrameType.HELLO, b"", 2**31)),
    "a-server-that-gets-single-bytes": _seed(check_end, SECRET, *(what | ends.BY_BYTES for what in WHOLE)),
    "a-server-that-refuses": _seed(check_end, SECRET | ends.REFUSES, *WHOLE),
    "a-server-that-is-probed": _seed(check_end, SECRET | ends.PROBE | ends.OTHER_HOST, *WHOLE),
    "a-server-and-the-wrong-secret": _seed(check_end, SECRET | ends.WRONG_SECRET, *WHOLE),
    "a-server-and-more-after-the-proof": _seed(check_end, TLS, *WHOLE, ends.ANY_BYTES, 0, 4, b"VRBN"),
    "a-server-and-several-versions": _seed(
        check_end, NONE, *_own(FrameType.HELLO, "versions", [1, 2]), ends.RIGHT_CHECKSUM, 0
    ),
    "a-server-and-no-common-wire": _seed(
        check_end, NONE, *_own(FrameType.HELLO, "wires", ["tcp"]), ends.RIGHT_CHECKSUM, 0
    ),
    "a-server-and-a-cut-hello": _seed(check_end, SECRET, ends.HONEST_CUT, 0, 9, ends.END_OF_FILE),
    "a-client-with-a-secret": _seed(check_end, SECRET | ends.CLIENT, *WHOLE),
    "a-client-that-probes": _seed(check_end, SECRET | ends.CLIENT | ends.PROBE, *WHOLE),
    "a-client-and-the-wrong-secret": _seed(check_end, SECRET | ends.CLIENT | ends.WRONG_SECRET, *WHOLE),
    "a-client-and-a-wire-that-it-lacks": _seed(
        check_end,
        *(NONE | ends.CLIENT, ends.OWN, KINDS.index(FrameType.CHALLENGE), 0, 0, ends.RIGHT_CHECKSUM),
        *(1, *_change(FrameType.WELCOME, "wires", [{"name": "tcp", "address": "a"}])),
    ),
    "a-client-and-a-downgrade": _seed(
        check_end, SECRET | ends.CLIENT, ends.OWN, KINDS.index(FrameType.CHALLENGE), 0, 0
    ),
    "a-client-and-the-end-of-the-connection": _seed(check_end, TLS | ends.CLIENT, ends.END_OF_FILE),
    "a-refusal": _seed(check_token, LinkRefusal(LinkRefusalReason.BUSY, "no room").encode()),
    "a-signed-request": _seed(check_signed_token, 1, 2, bytes(range(27)), 40, 1),
    "a-signed-answer": _seed(check_signed_token, 0, 2, bytes(range(14)), 20, 1),
    "first-bytes-of-a-link": _seed(check_first_bytes, b"MPA ID Req Frame"),
    "first-bytes-of-a-link-inside-tls": _seed(check_first_bytes, _records(_client_hello(LINK_ALPN), 8)),
}
