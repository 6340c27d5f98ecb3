"""The tokens that open a link: fixed layout, signed, and accepted once."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.errors import EXPLANATIONS, VerbenaError, setup_error
from verbena.transport.handshake.link_token import (
    MAX_BYTES,
    AttemptGuard,
    LinkAnswer,
    LinkRefusal,
    LinkRefusalReason,
    LinkRequest,
)

KEY = bytes(range(32))
REQUEST = LinkRequest(session_id=0x0102030405060708, attempt=9, received=10, window=11, slot_bytes=4096)
ANSWER = LinkAnswer(received=12, window=13, slot_bytes=512)
TOKEN = REQUEST.encode(key=KEY, wire="shm")
REPLY = ANSWER.encode(key=KEY, wire="shm", attempt=9)

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
requests = st.builds(
    LinkRequest,
    session_id=U64,
    attempt=U32,
    received=U64,
    window=U16,
    slot_bytes=U32,
    replaces=st.booleans(),
)
answers = st.builds(LinkAnswer, received=U64, window=U16, slot_bytes=U32)


def code_of(error: pytest.ExceptionInfo[VerbenaError]) -> str:
    return error.value.code


def test_the_layout_of_a_request_is_fixed() -> None:
    """version, session, attempt, received, window, slot bytes, whether it replaces a link, mac, 0x01:
    changing this needs a new version."""
    assert TOKEN[:28].hex() == "02010203040506070800000009000000000000000a000b0000100000"
    assert TOKEN[28:52] == hmac.new(KEY, b"client\x03shm" + TOKEN[:28], hashlib.sha256).digest()[:24]
    assert (TOKEN[52:], len(TOKEN)) == (b"\x01", 53)
    assert replace(REQUEST, replaces=True).encode(key=KEY, wire="shm")[27] == 1


def test_the_layout_of_an_answer_is_fixed() -> None:
    assert REPLY[:15].hex() == "02000000000000000c000d00000200"
    signed = b"server\x03shm" + REPLY[:15] + b"\0\0\0\x09"
    assert REPLY[15:39] == hmac.new(KEY, signed, hashlib.sha256).digest()[:24]
    assert (REPLY[39:], len(REPLY)) == (b"\x01", 40)


@given(requests, answers, U32)
def test_a_token_decodes_as_encoded(request_: LinkRequest, answer: LinkAnswer, attempt: int) -> None:
    """Any values decode as encoded, fit into the private data and never end in zero, also if the wire added
    padding."""
    token = request_.encode(key=KEY, wire="ibv")
    reply = answer.encode(key=KEY, wire="ibv", attempt=attempt)
    for data in (token, reply):
        assert len(data) <= MAX_BYTES
        assert data[-1] != 0
    for padding in (b"", bytes(MAX_BYTES - len(token)), bytes(200)):
        assert LinkRequest.decode(token + padding, key=KEY, wire="ibv") == request_
        assert LinkRequest.session_of(token + padding) == request_.session_id
        assert LinkAnswer.decode(reply + padding, key=KEY, wire="ibv", attempt=attempt) == answer


def test_a_flipped_bit_is_refused_wherever_it_is() -> None:
    for position in range(8 * len(TOKEN)):
        damaged = bytearray(TOKEN)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(VerbenaError) as error:
            LinkRequest.decode(bytes(damaged), key=KEY, wire="shm")
        assert code_of(error) in ("credentials", "version_mismatch", "bad_message")
    for position in range(8 * len(REPLY)):
        damaged = bytearray(REPLY)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(VerbenaError) as error:
            LinkAnswer.decode(bytes(damaged), key=KEY, wire="shm", attempt=9)
        assert code_of(error) in ("credentials", "version_mismatch", "bad_message")


@pytest.mark.parametrize(("key", "wire"), [(bytes(32), "shm"), (KEY, "iwarp"), (KEY, "shm2"), (KEY, "")])
def test_a_request_is_good_for_its_session_and_wire_only(key: bytes, wire: str) -> None:
    with pytest.raises(VerbenaError) as error:
        LinkRequest.decode(TOKEN, key=key, wire=wire)
    assert code_of(error) == "credentials"


@pytest.mark.parametrize(
    ("key", "wire", "attempt"), [(bytes(32), "shm", 9), (KEY, "iwarp", 9), (KEY, "shm", 8), (KEY, "shm", 10)]
)
def test_an_answer_is_good_for_its_attempt_only(key: bytes, wire: str, attempt: int) -> None:
    with pytest.raises(VerbenaError) as error:
        LinkAnswer.decode(REPLY, key=key, wire=wire, attempt=attempt)
    assert code_of(error) == "credentials"


def test_a_request_cannot_be_sent_back_as_an_answer() -> None:
    """A reflected token is refused, because each end signs with its own role."""
    with pytest.raises(VerbenaError) as error:
        LinkAnswer.decode(TOKEN, key=KEY, wire="shm", attempt=9)
    assert code_of(error) == "bad_message"


@pytest.mark.parametrize("length", [*range(len(TOKEN)), len(TOKEN) + 1, 56, 300])
def test_a_token_of_another_length_is_refused(length: int) -> None:
    data = (TOKEN + b"\x01" * 300)[:length]
    for decode in (LinkRequest.session_of, lambda d: LinkRequest.decode(d, key=KEY, wire="shm")):
        with pytest.raises(VerbenaError) as error:
            decode(data)
        assert code_of(error) == "bad_message"


def test_another_version_is_distinguished_from_garbage() -> None:
    with pytest.raises(VerbenaError, match="the peer 3") as error:
        LinkRequest.session_of(b"\x03" + TOKEN[1:])
    assert code_of(error) == "version_mismatch"


@given(st.binary(max_size=80))
def test_garbage_raises_only_verbena_errors(data: bytes) -> None:
    for decode in (
        LinkRequest.session_of,
        lambda d: LinkRequest.decode(d, key=KEY, wire="shm"),
        lambda d: LinkAnswer.decode(d, key=KEY, wire="shm", attempt=1),
    ):
        with pytest.raises(VerbenaError):
            decode(data)
    assert isinstance(LinkRefusal.decode(data), LinkRefusal)


@pytest.mark.parametrize(
    "field",
    [{"session_id": 2**64}, {"attempt": -1}, {"received": 2**64}, {"window": 2**16}, {"slot_bytes": 2**32}],
)
def test_a_number_that_does_not_fit_is_refused_when_written(field: dict[str, int]) -> None:
    numbers = {"session_id": 1, "attempt": 1, "received": 1, "window": 1, "slot_bytes": 1, **field}
    with pytest.raises(VerbenaError) as error:
        LinkRequest(**numbers).encode(key=KEY, wire="shm")
    assert code_of(error) == "invalid_argument"


@given(st.sampled_from(LinkRefusalReason), st.text(max_size=80))
def test_a_refusal_truncates_its_reason_to_the_private_data(reason: LinkRefusalReason, text: str) -> None:
    data = LinkRefusal(reason, text).encode()
    assert len(data) <= MAX_BYTES
    assert data[-1] != 0
    got = LinkRefusal.decode(data + bytes(20))
    assert got.reason is reason
    assert got.text == "".join(c if c.isprintable() else "?" for c in text)[: len(got.text)]
    assert got.text or not text


def test_a_reject_without_our_private_data_is_still_a_reject() -> None:
    for data in (b"", bytes(56), b"\xf0nobody", b"\x02\x1b[31m", b"\x02\n"):
        assert LinkRefusal.decode(data) == LinkRefusal(LinkRefusalReason.OTHER)
    assert LinkRefusal.decode(b"").error(operation="dial").code == "rejected"


@pytest.mark.parametrize("reason", LinkRefusalReason)
def test_every_refusal_becomes_an_explained_error(reason: LinkRefusalReason) -> None:
    error = LinkRefusal(reason, "so there").error(operation="dial", peer="b:1")
    assert error.code in EXPLANATIONS
    assert (error.detail, error.peer) == ("so there", "b:1")


@pytest.mark.parametrize("code", ["session_unknown", "stale_attempt", "credentials", "version_mismatch"])
def test_an_error_crosses_the_wire_as_a_refusal(code: str) -> None:
    sent = LinkRefusal.of(setup_error(code, operation="accept link", detail="a reason"))
    got = LinkRefusal.decode(sent.encode()).error(operation="dial")
    assert (got.code, got.detail) == (code, "a reason")


@given(st.lists(st.integers(0, 20)))
def test_the_guard_lets_only_growing_attempts_through(attempts: list[int]) -> None:
    guard, through = AttemptGuard(), [0]
    for attempt in attempts:
        if attempt > through[-1]:
            guard.accept(attempt)
            through.append(attempt)
        else:
            with pytest.raises(VerbenaError) as error:
                guard.accept(attempt)
            assert code_of(error) == "stale_attempt"
        assert guard.last == through[-1]
