"""The handshake (hello): two nodes negotiate a version, authenticate, and agree on the values of a session.

    client                                     server
    HELLO      versions, node, nonce, wires →
                                             ← CHALLENGE  version, node, nonce, authentication method
    PROOF      that it knows the secret     →
                                             ← WELCOME    its own proof, session, wires, limits
                                               (ALIVE for a probe, REFUSAL at any point)

A proof covers all earlier bytes of both directions and its own frame. These include both nonces, which
prevents replay, and the version and the method, which prevents a downgrade. Without a secret (methods "none"
and "tls") the proof has an empty key and is only a checksum. There is no I/O here; exchange.py does it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

from verbena.errors import EXPLANATIONS, VerbenaError, setup_error
from verbena.transport.handshake.agreement import (
    Agreement,
    Authentication,
    HelloClient,
    NodeInfo,
    Offer,
    ProbeReply,
    WireOffer,
)
from verbena.transport.handshake.frames import (
    KEY_BYTES,
    MAX_REASON,
    NONCE_BYTES,
    PROOF_BYTES,
    Fields,
    FrameReader,
    FrameType,
    bad_message,
    encode,
)

__all__ = [
    "VERSIONS",
    "Agreement",
    "Authentication",
    "ClientHello",
    "Event",
    "HelloClient",
    "NodeInfo",
    "Offer",
    "ProbeReply",
    "ServerHello",
    "WireOffer",
    "hkdf",
]

VERSIONS = (1,)

# The codes of a refusal. Any other code from a peer counts as "rejected".
_REFUSAL_CODES = {"bad_message", "credentials", "downgrade", "no_common_wire", "rejected", "version_mismatch"}

Random = Callable[[int], bytes]


Event = bytes | HelloClient | ProbeReply | Agreement  # bytes must be sent to the peer


class _Hello(ABC):
    """The parts common to both ends: order of frames, transcript, proofs. An error is final."""

    def __init__(
        self, node: NodeInfo, auth: Authentication, peer: str, identity: str, random: Random
    ) -> None:
        self.peer = peer
        self.refusal_frame = b""  # after an error: the bytes to send before closing
        self.answered = False  # the peer has sent a frame
        self._node, self._auth, self._identity, self._random = node, auth, identity, random
        self._reader = FrameReader()
        self._transcript = b""
        self._due: FrameType | None = None
        self._error: VerbenaError | None = None

    def receive(self, data: bytes) -> list[Event]:
        """Processes received bytes and returns events in order; send those that are bytes.
        After an error send `refusal_frame` and close the connection: every further call raises the same
        error."""
        events: list[Event] = []
        try:
            self._check()
            for kind, fields, raw in self._reader.feed(data):
                self.answered = True
                if kind is FrameType.REFUSAL:
                    raise self._fail(_refusal(fields), notify_peer=False)
                if kind is not self._due:
                    due = self._due.name if self._due else "nothing"
                    raise bad_message(f"{kind.name} where {due} was due")
                events += self._take(kind, fields, raw)
            if self._due is None and not self._reader.empty:
                raise bad_message("bytes after the last frame")
        except VerbenaError as error:
            raise self._fail(error) from error.__cause__
        return events

    def receive_eof(self, errno: int | None = None) -> NoReturn:
        """Reports that the peer closed the connection, or that it broke with `errno`. Always raises."""
        self._check()
        detail = f"the {'connection broke' if errno else 'peer hung up'} {self.progress}"
        raise self._fail(setup_error(self._eof_code(), operation="hello", detail=detail, errno=errno))

    @property
    def progress(self) -> str:
        """The progress of the handshake, for messages."""
        return f"before {self._due.name}" if self._due else "after the last frame"

    @abstractmethod
    def _take(self, kind: FrameType, fields: Fields, raw: bytes) -> list[Event]:
        """Processes the expected frame and returns the events."""

    def _eof_code(self) -> str:
        return "rejected"

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)  # each raise would add to the traceback that it keeps

    def _fail(self, error: VerbenaError, *, notify_peer: bool = True) -> VerbenaError:
        if self._error is None:
            error.peer = error.peer or self.peer or None
            self._error, self._due = error, None
            self.refusal_frame = _refusal_frame(error) if notify_peer else b""
        return self._error

    def _seal(self, label: bytes, kind: FrameType, fields: Fields) -> bytes:
        """Returns the frame with its proof, and adds it to the transcript."""
        proof = self._proof(label, kind, fields)
        raw = encode(kind, {**fields, "proof": proof.hex()})
        self._transcript += raw
        return raw

    def _verify(self, label: bytes, kind: FrameType, fields: Fields, raw: bytes) -> None:
        proof = self._proof(label, kind, fields)
        if not hmac.compare_digest(proof, bytes.fromhex(fields["proof"])):
            if not self._auth.secret:
                raise bad_message("the checksum is wrong")
            raise setup_error("credentials", operation="hello", detail="the proof is wrong")
        self._transcript += raw

    def _proof(self, label: bytes, kind: FrameType, fields: Fields) -> bytes:
        unsigned = encode(kind, {**fields, "proof": "00" * PROOF_BYTES})
        return hmac.digest(self._auth.secret, label + self._transcript + unsigned, "sha256")

    def _hash_own_host(self, nonce: bytes) -> str:
        host_id = self._node.host_id
        return _hash_host_id(host_id, nonce) if host_id else self._random(32).hex()

    def _is_own_host(self, peer: Fields) -> bool:
        host_id = self._node.host_id
        host = _hash_host_id(host_id, bytes.fromhex(peer["nonce"]))
        return bool(host_id) and hmac.compare_digest(peer["host"], host)

    def _session_key(self, welcome: Fields) -> bytes:
        entropy = bytes.fromhex(welcome["key"]) or bytes(KEY_BYTES)
        salt = hashlib.sha256(self._transcript).digest()
        return hkdf(entropy + self._auth.secret, salt=salt, info=b"verbena session key")


class ClientHello(_Hello):
    """The client side. Send start(), then call receive() until it returns an Agreement, or ProbeReply for a
    probe. `secure`: inside TLS, with the peer `peer_identity`. `expect_node`: `credentials` if the server has
    another name. invalid_argument for the method "tls" without TLS."""

    def __init__(
        self,
        node: NodeInfo,
        *,
        auth: Authentication,
        wires: Sequence[str] = (),
        purpose: Literal["open", "probe"] = "open",
        secure: bool = False,
        peer: str = "",
        peer_identity: str = "",
        expect_node: str = "",
        versions: Sequence[int] = VERSIONS,
        random: Random = secrets.token_bytes,
    ) -> None:
        super().__init__(node, auth, peer, peer_identity, random)
        if auth.method == "tls" and not secure:
            detail = "authentication by certificate needs TLS"
            raise setup_error("invalid_argument", operation="hello", detail=detail)
        self._secure, self._expect_node = secure, expect_node
        nonce = random(NONCE_BYTES)
        self._hello: Fields = {
            "versions": list(versions),
            "purpose": purpose,
            "node": node.name,
            "boot_epoch": node.boot_epoch,
            "host": self._hash_own_host(nonce),
            "nonce": nonce.hex(),
            "wires": list(wires),
        }
        self._challenge: Fields = {}
        self._first = self._transcript = encode(FrameType.HELLO, self._hello)
        self._due = FrameType.CHALLENGE

    def start(self) -> bytes:
        """Returns the first frame, to be sent."""
        return self._first

    def _take(self, kind: FrameType, fields: Fields, raw: bytes) -> list[Event]:
        if kind is FrameType.CHALLENGE:
            return [self._on_challenge(fields, raw)]
        self._verify(b"verbena server", kind, fields, raw)
        self._due = None
        node = self._challenge["node"]
        if self._expect_node not in ("", node):
            detail = f"this is node {node!r}, not {self._expect_node!r}"
            raise setup_error("credentials", operation="hello", detail=detail)
        if kind is FrameType.ALIVE:
            return [ProbeReply(node, self._challenge["boot_epoch"], self._identity)]
        return [self._on_welcome(fields)]

    def _eof_code(self) -> str:
        # With TLS 1.3 a client sees only this if the server rejects its certificate.
        return "tls_handshake" if self._secure and self._due is FrameType.CHALLENGE else super()._eof_code()

    def _on_challenge(self, fields: Fields, raw: bytes) -> bytes:
        if fields["version"] not in self._hello["versions"]:
            raise _version_mismatch(self._hello["versions"], [fields["version"]])
        self._check_method(fields["auth"])
        self._challenge = fields
        self._transcript += raw
        probe = self._hello["purpose"] == "probe"
        self._due = FrameType.ALIVE if probe else FrameType.WELCOME
        process = self._node.process if self._is_own_host(fields) else ""
        return self._seal(b"verbena client", FrameType.PROOF, {"process": process})

    def _check_method(self, asked: str) -> None:
        mine = self._auth.method
        if asked == mine:
            return
        code = "downgrade" if asked == "none" else "credentials"
        detail = f"the server authenticates by {asked!r}, this end by {mine!r}"
        raise setup_error(code, operation="hello", detail=detail)

    def _on_welcome(self, fields: Fields) -> Agreement:
        offered = tuple(WireOffer(wire["name"], wire["address"]) for wire in fields["wires"])
        if not {wire.name for wire in offered} <= set(self._hello["wires"]):
            raise bad_message("WELCOME offers a wire that was not requested")
        if bool(fields["key"]) != self._secure:
            raise bad_message("WELCOME must hold a key inside TLS, and nowhere else")
        key, process = self._session_key(fields), fields["process"]
        return _agreement(self._challenge["version"], self._challenge, fields, key, self._identity, process)


class ServerHello(_Hello):
    """The server side. receive() returns the HelloClient once it is authenticated. If its purpose is "open",
    call welcome() or refuse(); the response to a probe is among the events."""

    def __init__(
        self,
        node: NodeInfo,
        *,
        auth: Authentication,
        secure: bool = False,
        peer: str = "",
        peer_identity: str = "",
        versions: Sequence[int] = VERSIONS,
        random: Random = secrets.token_bytes,
    ) -> None:
        super().__init__(node, auth, peer, peer_identity, random)
        self._secure, self._versions = secure, tuple(versions)
        self._hello: Fields = {}
        self._version = 0
        self._client: HelloClient | None = None
        self._due = FrameType.HELLO

    def welcome(self, offer: Offer) -> list[Event]:
        """Accepts the HelloClient: returns the frame to send and the Agreement, with the common wires.
        no_common_wire if there is none; invalid_argument if no HelloClient waits."""
        client = self._waiting_client()
        wires = [
            {"name": wire.name, "address": wire.address} for wire in offer.wires if wire.name in client.wires
        ]
        fields: Fields = {
            "session_id": offer.session_id,
            "same_host": client.same_host,
            "wires": wires,
            "window": offer.window,
            "max_message_bytes": offer.max_message_bytes,
            "resume_timeout_ms": round(offer.resume_timeout_s * 1000),
            "key": self._random(KEY_BYTES).hex() if self._secure else "",
            "process": self._node.process if client.same_host else "",
        }
        try:
            if not wires:
                theirs = ", ".join(client.wires) or "none"
                mine = ", ".join(wire.name for wire in offer.wires) or "none"
                detail = f"the client has {theirs}; the server offers {mine}"
                raise setup_error("no_common_wire", operation="hello", detail=detail)
            raw = self._seal(b"verbena server", FrameType.WELCOME, fields)
        except VerbenaError as error:
            raise self._fail(error) from error.__cause__
        self._client = None
        key, process = self._session_key(fields), client.process
        return [raw, _agreement(self._version, self._hello, fields, key, self._identity, process)]

    def refuse(self, error: VerbenaError) -> bytes:
        """Rejects the HelloClient: returns the frame to send before closing the connection."""
        self._waiting_client()
        self._fail(error)
        self._client = None
        return self.refusal_frame

    def _take(self, kind: FrameType, fields: Fields, raw: bytes) -> list[Event]:
        return [self._on_hello(fields, raw)] if kind is FrameType.HELLO else self._on_proof(fields, raw)

    def _on_hello(self, fields: Fields, raw: bytes) -> bytes:
        common = set(fields["versions"]) & set(self._versions)
        if not common:
            raise _version_mismatch(self._versions, fields["versions"])
        if self._auth.method == "tls" and not (self._secure and self._identity):
            raise setup_error("credentials", operation="hello", detail="the client showed no certificate")
        self._hello, self._version, self._due = fields, max(common), FrameType.PROOF
        nonce = self._random(NONCE_BYTES)
        challenge: Fields = {
            "version": self._version,
            "node": self._node.name,
            "boot_epoch": self._node.boot_epoch,
            "host": self._hash_own_host(nonce),
            "nonce": nonce.hex(),
            "auth": self._auth.method,
        }
        answer = encode(FrameType.CHALLENGE, challenge)
        self._transcript = raw + answer
        return answer

    def _on_proof(self, fields: Fields, raw: bytes) -> list[Event]:
        self._verify(b"verbena client", FrameType.PROOF, fields, raw)
        self._due = None
        hello, same_host = self._hello, self._is_own_host(self._hello)
        name, epoch, wires = hello["node"], hello["boot_epoch"], tuple(hello["wires"])
        process = fields["process"] if same_host else ""
        client = HelloClient(hello["purpose"], name, epoch, same_host, wires, self._identity, process)
        if client.purpose == "probe":
            return [self._seal(b"verbena server", FrameType.ALIVE, {}), client]
        self._client = client
        return [client]

    def _waiting_client(self) -> HelloClient:
        self._check()
        if self._client is None:
            raise setup_error("invalid_argument", operation="hello", detail="no client waits for an answer")
        return self._client


def hkdf(material: bytes, *, salt: bytes, info: bytes, length_bytes: int = KEY_BYTES) -> bytes:
    """Derives a key with HKDF-SHA256 (RFC 5869)."""
    key = hmac.digest(salt, material, "sha256")
    block, output = b"", b""
    for number in range(1, -(-length_bytes // 32) + 1):
        block = hmac.digest(key, block + info + bytes([number]), "sha256")
        output += block
    return output[:length_bytes]


def _agreement(
    version: int, peer: Fields, welcome: Fields, key: bytes, identity: str, process: str
) -> Agreement:
    return Agreement(
        version=version,
        session_id=welcome["session_id"],
        key=key,
        peer_name=peer["node"],
        peer_boot_epoch=peer["boot_epoch"],
        same_host=welcome["same_host"],
        wires=tuple(WireOffer(wire["name"], wire["address"]) for wire in welcome["wires"]),
        window=welcome["window"],
        max_message_bytes=welcome["max_message_bytes"],
        resume_timeout_s=welcome["resume_timeout_ms"] / 1000,
        peer_identity=identity,
        peer_process=process if welcome["same_host"] else "",
    )


def _hash_host_id(host_id: str, nonce: bytes) -> str:
    # Lets the peer recognise its own host without disclosing the host id to other hosts.
    return hashlib.sha256(b"verbena host" + nonce + host_id.encode()).hexdigest()


def _version_mismatch(mine: Sequence[int], theirs: Sequence[int]) -> VerbenaError:
    own, peers = (", ".join(map(str, versions)) for versions in (mine, theirs))
    detail = f"this end supports {own}, the peer {peers}"
    return setup_error("version_mismatch", operation="hello", detail=detail)


def _refusal(fields: Fields) -> VerbenaError:
    code = fields["code"] if fields["code"] in _REFUSAL_CODES else "rejected"
    return setup_error(code, operation="hello", detail=f"the peer says: {fields['reason']}")


def _refusal_frame(error: VerbenaError) -> bytes:
    code = error.code if error.code in _REFUSAL_CODES else "rejected"
    reason = error.detail or EXPLANATIONS[code].what
    printable = "".join(c if c.isprintable() else "?" for c in reason)[:MAX_REASON]
    return encode(FrameType.REFUSAL, {"code": code, "reason": printable})
