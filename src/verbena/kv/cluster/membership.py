"""Proof of membership, without I/O: the two ends of a session prove that they hold the keys which the cluster
map lists for two members.

    opener                                        acceptor
    HELLO      both member ids, nonce            →
                                                ← CHALLENGE  nonce, proof of the acceptor
    PROOF      map revision, proof of the opener →
                                                ← (empty)

A proof is an HMAC-SHA256 with the prover's key over its direction, both ids, both nonces, the map revision,
the session's id and a value derived from the session's handshake. The nonces are new for each session, so a
recorded proof is worthless on another session; the direction keeps an end from sending a proof back to its
prover. A process between two members cannot relay proofs from one session to another, because their
handshakes differ. It could relay a whole handshake that has neither a secret nor certificates; such sessions
are possible on one host only."""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from verbena.errors import VerbenaError, setup_error

METHOD = "shards.member"
KEY_BYTES = NONCE_BYTES = PROOF_BYTES = 32

_MAGIC, _VERSION = b"VSMB", 1
# Each begins with magic, version and the message's number.
_HELLO = struct.Struct("<4sBB20s20s32s")  # opener, acceptor, nonce
_CHALLENGE = struct.Struct("<4sBB32s32s")  # nonce, proof
_PROOF = struct.Struct("<4sBBQ32s")  # revision of the opener's map, proof
_NUMBERS = {_HELLO: 1, _CHALLENGE: 2, _PROOF: 3}
# The directions, by the prover; they are a part of each proof, so their bytes never change.
_BY_OPENER, _BY_ACCEPTOR = b"caller", b"callee"

Random = Callable[[int], bytes]


class Bound(Protocol):
    """The session that a proof is bound to. Both methods return equal values at both of its ends."""

    @property
    def id(self) -> int: ...

    def binding(self, label: bytes) -> bytes:
        """Returns bytes that no other session has."""


@dataclass(frozen=True)
class MemberHello:
    opener: bytes
    acceptor: bytes
    nonce: bytes

    @classmethod
    def parse(cls, data: bytes) -> MemberHello:
        """ProtocolError (bad_envelope): it is not exactly one hello."""
        return cls(*_fields(data, _HELLO))

    def __bytes__(self) -> bytes:
        return _pack(_HELLO, self.opener, self.acceptor, self.nonce)


class Opener:
    """The end that opened the session: send hello(), then the result of prove()."""

    def __init__(
        self,
        session: Bound,
        *,
        member: str,
        key: bytes,
        acceptor: str,
        revision: int = 0,
        random: Random = secrets.token_bytes,
    ) -> None:
        self._session, self._key, self._revision = session, key, revision
        self._hello = MemberHello(bytes.fromhex(member), bytes.fromhex(acceptor), random(NONCE_BYTES))

    def hello(self) -> bytes:
        return bytes(self._hello)

    def prove(self, challenge: bytes, acceptor_key: bytes) -> bytes:
        """Checks the acceptor's proof and returns this end's. DeniedError (not_a_member): the other end does
        not hold `acceptor_key`. ProtocolError: it is no challenge."""
        nonce, proof = _fields(challenge, _CHALLENGE)
        known = _transcript(self._session, self._hello, nonce)
        if not acceptor_key or not hmac.compare_digest(proof, _proof(acceptor_key, _BY_ACCEPTOR, known)):
            raise _denied("the peer is not the member that the cluster map has at this address")
        own = _proof(self._key, _BY_OPENER, known, self._revision)
        return _pack(_PROOF, self._revision, own)


class Acceptor:
    """The end that accepted the session: answers a hello, then verifies the opener's proof."""

    def __init__(
        self,
        session: Bound,
        hello: MemberHello,
        *,
        member: str,
        key: bytes,
        random: Random = secrets.token_bytes,
    ) -> None:
        """DeniedError (not_a_member): the opener wants another member, or says that it is this one."""
        own = bytes.fromhex(member)
        if hello.acceptor != own:
            raise _denied("this node is another member")
        if hello.opener == own:
            raise _denied("the peer names this node itself")
        self.opener = hello.opener.hex()
        nonce = random(NONCE_BYTES)
        self._known = _transcript(session, hello, nonce)
        self.challenge = _pack(_CHALLENGE, nonce, _proof(key, _BY_ACCEPTOR, self._known))

    def verify(self, proof: bytes, opener_key: bytes) -> int | None:
        """Returns the revision of the opener's map; None: the opener does not hold this key. ProtocolError:
        it is no proof."""
        revision, sent = _fields(proof, _PROOF)
        expected = _proof(opener_key, _BY_OPENER, self._known, revision)
        return revision if opener_key and hmac.compare_digest(sent, expected) else None


def is_member_hello(data: bytes) -> bool:
    """Whether it is a hello rather than a proof, if it is valid."""
    return len(data) == _HELLO.size


def _proof(key: bytes, direction: bytes, known: bytes, revision: int = 0) -> bytes:
    label = b"verbena cluster member, " + direction  # equally long in both directions
    return hmac.digest(key, label + struct.pack("<Q", revision) + known, "sha256")


def _transcript(session: Bound, hello: MemberHello, nonce: bytes) -> bytes:
    """All parts have a fixed length, so that no two transcripts have the same bytes."""
    return struct.pack("<Q", session.id) + session.binding(b"member") + bytes(hello) + nonce


def _pack(message: struct.Struct, *values: object) -> bytes:
    return message.pack(_MAGIC, _VERSION, _NUMBERS[message], *values)


def _fields(data: bytes, message: struct.Struct) -> tuple[Any, ...]:
    if len(data) != message.size:
        raise _fault(f"{len(data)} bytes where {message.size} were expected")
    magic, version, number, *fields = message.unpack(data)
    if (magic, version, number) != (_MAGIC, _VERSION, _NUMBERS[message]):
        raise _fault(
            f"{magic!r} version {version}, message {number}: message {_NUMBERS[message]} was expected"
        )
    return tuple(fields)


def _fault(detail: str) -> VerbenaError:
    return setup_error("bad_envelope", operation="prove membership", detail=detail)


def _denied(detail: str) -> VerbenaError:
    return setup_error("not_a_member", operation="prove membership", detail=detail)
