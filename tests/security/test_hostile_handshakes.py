"""Hostile input of the handshake: frames in any order, changed, cut short or endless, and hostile link
tokens. It gives a documented error, in bounded time and memory, and never a session."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.errors import VerbenaError
from verbena.transport.handshake.frames import FrameType, encode
from verbena.transport.handshake.hello import Authentication, ClientHello, NodeInfo, ServerHello
from verbena.transport.handshake.link_token import (
    MAX_BYTES,
    LinkAnswer,
    LinkRefusal,
    LinkRefusalReason,
    LinkRequest,
)

SECRET = Authentication("secret", b"sixteen bytes ok")
CODES = {"bad_message", "credentials", "downgrade", "no_common_wire", "rejected", "version_mismatch"}
TOKEN_CODES = {"bad_message", "credentials", "version_mismatch"}
MAX_FRAME_BYTES = 9 + 16 * 1024
KEY = bytes(32)


def ends() -> list[ClientHello | ServerHello]:
    return [
        ClientHello(NodeInfo("anna", 1), auth=SECRET, wires=("shm", "iwarp")),
        ServerHello(NodeInfo("bert", 2), auth=SECRET),
    ]


def recorded() -> list[bytes]:
    """A frame of each type: those of a hello with another secret, and both refusals."""
    other = Authentication("secret", b"sixteen bytes no")
    one = ClientHello(NodeInfo("anna", 1), auth=other, wires=("shm",))
    two = ServerHello(NodeInfo("bert", 2), auth=other)
    hello = one.start()
    (challenge,) = two.receive(hello)
    assert isinstance(challenge, bytes)
    (proof,) = one.receive(challenge)
    assert isinstance(proof, bytes)
    welcome = {
        "proof": "00" * 32,
        "session_id": 7,
        "same_host": True,
        "wires": [{"name": "shm", "address": "x"}],
        "window": 8,
        "max_message_bytes": 1 << 20,
        "resume_timeout_ms": 1000,
        "key": "",
        "process": "",
    }
    return [
        hello,
        challenge,
        proof,
        encode(FrameType.WELCOME, welcome),
        encode(FrameType.ALIVE, {"proof": "00" * 32}),
        encode(FrameType.REFUSAL, {"code": "credentials", "reason": "no"}),
        encode(FrameType.REFUSAL, {"code": "unheard of", "reason": ""}),
    ]


FRAMES = recorded()


@st.composite
def hostile_bytes(draw: st.DrawFn) -> bytes:
    """Frames in any order; some are cut short, have changed bits, a wrong length, or garbage behind them."""
    out = []
    for frame in draw(st.lists(st.sampled_from(FRAMES), max_size=5)):
        changed = bytearray(frame)
        change = draw(st.sampled_from(["no", "no", "cut", "flip", "length", "garbage"]))
        if change == "cut":
            del changed[draw(st.integers(0, len(frame))) :]
        elif change == "flip":
            bit = draw(st.integers(0, 8 * len(frame) - 1))
            changed[bit // 8] ^= 1 << bit % 8
        elif change == "length":
            changed[5:9] = draw(st.integers(0, 2**32 - 1)).to_bytes(4, "big")
        elif change == "garbage":
            changed += draw(st.binary(max_size=40))
        out.append(bytes(changed))
    return b"".join(out)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[start:end] for start, end in itertools.pairwise(edges))


@given(hostile_bytes(), st.lists(st.integers(0, 4000), max_size=4))
@settings(max_examples=200)
def test_hostile_frames_give_a_documented_error_and_no_session(data: bytes, cuts: list[int]) -> None:
    """For both ends. The refusal names a code of the protocol, and fits in a frame."""
    for end in ends():
        error = error_of(lambda end=end: [feed(end, piece) for piece in pieces(data, cuts)])
        if error is None:
            continue
        assert error.code in CODES
        assert len(end.refusal_frame) <= MAX_FRAME_BYTES
        assert error_of(lambda end=end: end.receive(FRAMES[0])) is error  # the error is final


def feed(end: ClientHello | ServerHello, data: bytes) -> None:
    assert all(isinstance(event, bytes) for event in end.receive(data))


def error_of(call: Callable[[], object]) -> VerbenaError | None:
    try:
        call()
    except VerbenaError as error:
        return error
    return None


HEADER = b"VRBN\x01"
ENDLESS: dict[str, Callable[[], Iterator[bytes]]] = {
    "zeros": lambda: itertools.repeat(bytes(4096)),
    "headers": lambda: itertools.repeat(HEADER),
    "the longest frame": lambda: itertools.chain(
        [HEADER + (16 * 1024).to_bytes(4, "big")], itertools.repeat(b"[" * 4096)
    ),
    "a frame beyond the limit": lambda: itertools.chain(
        [HEADER + (2**32 - 1).to_bytes(4, "big")], itertools.repeat(b"x" * 4096)
    ),
    "digits": lambda: itertools.chain(
        [HEADER + (16 * 1024).to_bytes(4, "big")], itertools.repeat(b"9" * 4096)
    ),
    "hellos": lambda: itertools.repeat(FRAMES[0]),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("which", [0, 1], ids=["client", "server"])
def test_an_endless_stream_ends_soon_and_takes_little_memory(name: str, which: int) -> None:
    """An error comes before much more than one frame has been read."""
    end = ends()[which]
    read, error = 0, None
    tracemalloc.start()
    began = time.process_time()
    try:
        for piece in ENDLESS[name]():
            read += len(piece)
            error = error_of(lambda piece=piece: feed(end, piece))
            if error is not None or read > MAX_FRAME_BYTES + 8192:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error is not None
    assert error.code in CODES
    assert time.process_time() - began < 1
    assert peak < 2 << 20


# Link tokens

REQUEST = LinkRequest(session_id=7, attempt=1, received=3, window=8, slot_bytes=4096)
ANSWER = LinkAnswer(received=3, window=8, slot_bytes=4096)
TOKENS = [REQUEST.encode(key=KEY, wire="shm"), ANSWER.encode(key=KEY, wire="shm", attempt=1)]

tokens = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(TOKENS).flatmap(lambda token: st.integers(0, len(token)).map(lambda cut: token[:cut])),
    st.tuples(st.sampled_from(TOKENS), st.integers(0, 8 * 40)).map(lambda pair: _flipped(*pair)),
    st.tuples(st.sampled_from(TOKENS), st.binary(min_size=1, max_size=64)).map(b"".join),
    st.integers(0, 1 << 20).map(lambda size: b"\x02" * size),
)


def _flipped(token: bytes, bit: int) -> bytes:
    changed = bytearray(token)
    bit %= 8 * len(token)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(tokens)
@settings(max_examples=300)
def test_a_hostile_token_opens_no_link(data: bytes) -> None:
    """Its error is a documented one; only zeros may follow a token, as a connection manager pads it."""
    for decode, good in (
        (lambda: LinkRequest.decode(data, key=KEY, wire="shm"), TOKENS[0]),
        (lambda: LinkAnswer.decode(data, key=KEY, wire="shm", attempt=1), TOKENS[1]),
    ):
        error = error_of(decode)
        assert error.code in TOKEN_CODES if error is not None else data.rstrip(b"\0") == good
    error = error_of(lambda: LinkRequest.session_of(data))
    assert error is None or error.code in TOKEN_CODES


@given(st.binary(max_size=100) | st.integers(0, 1 << 20).map(lambda size: b"\x05" * size))
def test_a_hostile_refusal_is_read_as_some_refusal(data: bytes) -> None:
    """It raises nothing, and its text is short and printable."""
    refusal = LinkRefusal.decode(data)
    assert isinstance(refusal.reason, LinkRefusalReason)
    assert refusal.text.isprintable()
    assert len(refusal.text) <= MAX_BYTES
