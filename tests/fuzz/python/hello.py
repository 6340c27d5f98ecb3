"""What a node reads before it knows its peer: frames of the hello and both of its ends, link tokens, and the
first bytes of a connection. The first byte of an input selects one of PARTS."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from fuzz.python.hello_ends import check_end
from fuzz.python.hello_frames import check_frames
from fuzz.python.script import Input, require

from verbena.errors import VerbenaError
from verbena.transport.handshake.first_bytes import MAX_BYTES, Protocol, detect_protocol
from verbena.transport.handshake.link_token import MAC_BYTES, LinkAnswer, LinkRefusal, LinkRequest
from verbena.transport.handshake.link_token import MAX_BYTES as MAX_TOKEN_BYTES

KEY, OTHER_KEY, WIRE, ATTEMPT = bytes(range(32)), bytes(32), "iwarp", 9
TOKEN_CODES = {"bad_message", "version_mismatch", "credentials"}
REQUEST_BYTES, ANSWER_BYTES = 28, 15
STEPS = 40  # of a decision by the first bytes: two for each of 16 records, and some more


def check(data: bytes) -> str:
    """Plays one input. Returns what came of it, in words; AssertionError if a rule does not hold."""
    script = Input(data)
    return PARTS[script.byte() % len(PARTS)](script)


def check_token(script: Input) -> str:
    """Any bytes are refused with a code of link tokens. A refusal can always be read."""
    data = script.rest()
    known = _outcome(lambda: LinkRequest.session_of(data))
    codes = {
        _outcome(lambda: LinkRequest.decode(data, key=KEY, wire=WIRE)),
        _outcome(lambda: LinkAnswer.decode(data, key=KEY, wire=WIRE, attempt=ATTEMPT)),
    }
    require(
        codes <= TOKEN_CODES and (known in TOKEN_CODES or isinstance(known, int)), f"{codes} are refusals"
    )
    refusal = LinkRefusal.decode(data)
    require(refusal.error(operation="dial", peer="peer").detail.isprintable(), "a refusal can be shown")
    encoded = refusal.encode()
    require(len(encoded) <= MAX_TOKEN_BYTES and not encoded.endswith(b"\0"), "a refusal fits")
    require(LinkRefusal.decode(encoded).reason is refusal.reason, "a reason survives")
    return f"token: {' '.join(sorted(map(str, codes)))}, refusal: {refusal.reason.name}"


def check_signed_token(script: Input) -> str:
    """A signed token gives its values, padded or not. It is not valid with another key, wire or attempt, with
    a changed byte, or as the other kind of token."""
    is_request = bool(script.byte() % 2)
    size = REQUEST_BYTES if is_request else ANSWER_BYTES
    fields = script.take(size).ljust(size, b"\0")
    name = bytes([len(WIRE)]) + WIRE.encode()
    signed = (
        b"client" + name + fields if is_request else b"server" + name + fields + ATTEMPT.to_bytes(4, "big")
    )
    token = fields + hmac.digest(KEY, signed, "sha256")[:MAC_BYTES] + b"\1"

    def request(data: bytes, key: bytes = KEY, wire: str = WIRE) -> object:
        return _outcome(lambda: LinkRequest.decode(data, key=key, wire=wire))

    def answer(data: bytes, key: bytes = KEY, wire: str = WIRE, attempt: int = ATTEMPT) -> object:
        return _outcome(lambda: LinkAnswer.decode(data, key=key, wire=wire, attempt=attempt))

    decode, other = (request, answer) if is_request else (answer, request)
    decoded = decode(token)
    require(decoded == decode(token + bytes(MAX_TOKEN_BYTES - len(token))), "padding changes nothing")
    at = script.byte() % len(token)
    flipped = token[:at] + bytes([token[at] ^ (1 + script.byte() % 255)]) + token[at + 1 :]
    refused = [decode(flipped), decode(token, OTHER_KEY), decode(token, wire="shm"), other(token)]
    refused += [] if is_request else [answer(token, attempt=ATTEMPT + 1)]
    require(all(code in TOKEN_CODES for code in refused), f"{refused} are refusals")
    if isinstance(decoded, LinkRequest):
        require(LinkRequest.session_of(token) == decoded.session_id, "the session is that of the token")
        require(request(decoded.encode(key=KEY, wire=WIRE)) == decoded, "a request survives")
    elif isinstance(decoded, LinkAnswer):
        require(decoded.encode(key=KEY, wire=WIRE, attempt=ATTEMPT) == token, "an answer survives")
    else:
        require(decoded == "version_mismatch" and fields[0] != 2, "only the version can be wrong")
    return f"signed token: {decoded if isinstance(decoded, str) else type(decoded).__name__}"


def check_first_bytes(script: Input) -> str:
    """A decision does not change when more bytes arrive. Until then each answer asks for more, and a peer
    cannot make it ask more often than its records allow."""
    data = script.rest()
    decision = detect_protocol(data)
    every = 1 + len(data) // 64
    for length in [*range(min(len(data), 64)), *range(64, len(data), every)]:
        early = detect_protocol(data[:length])
        if isinstance(early, Protocol):
            require(early is decision, "a decision is final")
        else:
            require(length < early <= MAX_BYTES, "it asks for more, within the limit")
    wanted, steps = 1, 0
    while wanted <= len(data):
        step, steps = detect_protocol(data[:wanted]), steps + 1
        if isinstance(step, Protocol):
            require(step is decision, "a decision by steps is that of all the bytes")
            break
        require(step > wanted, "it asks for more")
        wanted = step
    require(steps <= STEPS, f"{steps} steps are at most {STEPS}")
    return f"first bytes: {decision.name if isinstance(decision, Protocol) else 'more'}"


def _outcome(decode: Callable[[], object]) -> object:
    """What it returns, or the code of its error."""
    try:
        return decode()
    except VerbenaError as error:
        return error.code


PARTS = (check_frames, check_end, check_token, check_signed_token, check_first_bytes)
