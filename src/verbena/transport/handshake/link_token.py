"""Link tokens: the private data of a link's connection, with the session and the last received message.
InfiniBand carries 56 bytes and pads them with zeros, so no token ends in a zero byte. A token is signed with
the session key, including the wire's name, so it is not valid on another wire."""

from __future__ import annotations

import enum
import hmac
import struct
from dataclasses import dataclass

from verbena.errors import VerbenaError, setup_error

VERSION = 2
MAX_BYTES = 56
PROBE = b"probe"  # instead of a token: only tests whether the wire works
MAC_BYTES = 24
_END = b"\x01"

_REQUEST = struct.Struct("!BQIQHIB")  # version, session id, attempt, received, window, slot bytes, replaces
_ANSWER = struct.Struct("!BQHI")  # version, received, window, slot bytes
_ATTEMPT = struct.Struct("!I")
assert _REQUEST.size == 28
assert _ANSWER.size == 15
assert max(_REQUEST.size, _ANSWER.size) + MAC_BYTES + len(_END) <= MAX_BYTES


@dataclass(frozen=True)
class LinkRequest:
    """The token of a connect. `received` is the highest sequence number processed in order; `attempt` rises
    with every request. The client has room for `window` messages of up to `slot_bytes`.
    `replaces`: the current link works, and both ends keep it until the new one is up."""

    session_id: int
    attempt: int
    received: int
    window: int
    slot_bytes: int
    replaces: bool = False

    def encode(self, *, key: bytes, wire: str) -> bytes:
        """Returns the signed token for a link on `wire`. invalid_argument if a number is out of range."""
        fields = _pack(
            _REQUEST,
            "LinkRequest",
            self.session_id,
            self.attempt,
            self.received,
            self.window,
            self.slot_bytes,
            self.replaces,
        )
        return fields + _mac(key, b"client", wire, fields) + _END

    @staticmethod
    def session_of(data: bytes) -> int:
        """Returns the session id of a token, to look up its key. The token is not verified; call decode()."""
        session_id: int = _split(_REQUEST, data)[0][1]
        return session_id

    @classmethod
    def decode(cls, data: bytes, *, key: bytes, wire: str) -> LinkRequest:
        """Verifies a token and returns the request. bad_message, version_mismatch or credentials if it is not
        valid."""
        values, fields, mac = _split(_REQUEST, data)
        _verify(mac, _mac(key, b"client", wire, fields))
        _, session_id, attempt, received, window, slot_bytes, replaces = values
        return cls(session_id, attempt, received, window, slot_bytes, bool(replaces))


@dataclass(frozen=True)
class LinkAnswer:
    """The token of an accept: the last message that the server received in order, and its buffers."""

    received: int
    window: int
    slot_bytes: int

    def encode(self, *, key: bytes, wire: str, attempt: int) -> bytes:
        """Returns the signed token that answers the request with that `attempt`."""
        fields = _pack(_ANSWER, "LinkAnswer", self.received, self.window, self.slot_bytes)
        return fields + _mac(key, b"server", wire, fields, attempt) + _END

    @classmethod
    def decode(cls, data: bytes, *, key: bytes, wire: str, attempt: int) -> LinkAnswer:
        """Verifies the answer to that attempt and returns it. Errors as for LinkRequest.decode()."""
        values, fields, mac = _split(_ANSWER, data)
        _verify(mac, _mac(key, b"server", wire, fields, attempt))
        return cls(*values[1:])


class LinkRefusalReason(enum.IntEnum):
    """Why the server rejects a link. Zero is not used, since padding would hide it."""

    VERSION = 1
    SESSION_UNKNOWN = 2
    CREDENTIALS = 3
    STALE_ATTEMPT = 4
    BUSY = 5
    CLOSED = 6
    DRILL = 7  # the wire is disabled by a failover drill
    OTHER = 255


_CODES = {
    LinkRefusalReason.VERSION: "version_mismatch",
    LinkRefusalReason.SESSION_UNKNOWN: "session_unknown",
    LinkRefusalReason.CREDENTIALS: "credentials",
    LinkRefusalReason.STALE_ATTEMPT: "stale_attempt",
    LinkRefusalReason.CLOSED: "session_unknown",
    LinkRefusalReason.DRILL: "drill",
}
_REASONS = {
    "version_mismatch": LinkRefusalReason.VERSION,
    "session_unknown": LinkRefusalReason.SESSION_UNKNOWN,
    "credentials": LinkRefusalReason.CREDENTIALS,
    "stale_attempt": LinkRefusalReason.STALE_ATTEMPT,
    "queue_full": LinkRefusalReason.BUSY,
    "limit_exceeded": LinkRefusalReason.BUSY,
    "closed": LinkRefusalReason.CLOSED,
    "drill": LinkRefusalReason.DRILL,
}


@dataclass(frozen=True)
class LinkRefusal:
    """The private data of a reject: the reason. It is not signed, since the server may not know the session;
    confirm it by a handshake before ending the session."""

    reason: LinkRefusalReason
    text: str = ""

    @classmethod
    def of(cls, error: VerbenaError) -> LinkRefusal:
        """Returns the refusal for `error`; codes without a reason of their own become OTHER."""
        return cls(_REASONS.get(error.code, LinkRefusalReason.OTHER), error.detail)

    def encode(self) -> bytes:
        """Returns the private data. A long text is truncated, unprintable characters become "?"."""
        text = "".join(c if c.isprintable() else "?" for c in self.text).encode("utf-8", "replace")
        return bytes([self.reason]) + text[: MAX_BYTES - 1].decode("utf-8", "ignore").encode()

    @classmethod
    def decode(cls, data: bytes) -> LinkRefusal:
        """Returns the refusal in a reject. Never fails: unknown data gives the reason OTHER."""
        data = data.rstrip(b"\0")
        text = data[1:MAX_BYTES].decode("utf-8", "replace")
        if not data or data[0] not in LinkRefusalReason._value2member_map_ or not text.isprintable():
            return cls(LinkRefusalReason.OTHER)
        return cls(LinkRefusalReason(data[0]), text)

    def error(self, *, operation: str, peer: str = "") -> VerbenaError:
        """Returns the error for a dial that ended with this refusal."""
        code = _CODES.get(self.reason, "rejected")
        detail = self.text or self.reason.name.lower().replace("_", " ")
        return setup_error(code, operation=operation, peer=peer, detail=detail)


class AttemptGuard:
    """Accepts the attempts of a session in rising order only, so that a replayed token is rejected."""

    def __init__(self) -> None:
        self.last = 0

    def accept(self, attempt: int) -> None:
        """Records the attempt of a verified request. stale_attempt if it is not higher than the last."""
        if attempt <= self.last:
            detail = f"attempt {attempt} after {self.last}"
            raise setup_error("stale_attempt", operation="accept link", detail=detail)
        self.last = attempt


def _pack(layout: struct.Struct, name: str, *values: int) -> bytes:
    try:
        return layout.pack(VERSION, *values)
    except struct.error as error:
        detail = f"{name} with {values}: {error}"
        raise setup_error("invalid_argument", operation="link token", detail=detail) from error


def _split(layout: struct.Struct, data: bytes) -> tuple[tuple[int, ...], bytes, bytes]:
    """Returns the values, their bytes and the MAC of a token, after a check of version and length."""
    data = bytes(data).rstrip(b"\0")
    if data and data[0] != VERSION:
        detail = f"this end supports version {VERSION}, the peer {data[0]}"
        raise setup_error("version_mismatch", operation="link token", detail=detail)
    if len(data) != layout.size + MAC_BYTES + 1 or not data.endswith(_END):
        detail = f"{len(data)} bytes are not a token of {layout.size + MAC_BYTES + 1}"
        raise setup_error("bad_message", operation="link token", detail=detail)
    fields = data[: layout.size]
    return layout.unpack(fields), fields, data[layout.size : -1]


def _mac(key: bytes, end: bytes, wire: str, fields: bytes, attempt: int | None = None) -> bytes:
    name = wire.encode()
    # All other parts have a fixed length for each end, so the length of the name makes it unambiguous.
    parts = (end, bytes([len(name)]), name, fields, b"" if attempt is None else _ATTEMPT.pack(attempt))
    return hmac.digest(key, b"".join(parts), "sha256")[:MAC_BYTES]


def _verify(mac: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(mac, expected):
        detail = "the signature is wrong: another session key, wire or attempt"
        raise setup_error("credentials", operation="link token", detail=detail)
