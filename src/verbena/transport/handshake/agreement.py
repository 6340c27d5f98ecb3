"""The inputs and results of the handshake, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from verbena.errors import setup_error
from verbena.transport.handshake.frames import AUTH_METHODS

MIN_SECRET_BYTES = 16


@dataclass(frozen=True)
class NodeInfo:
    """The identity that a node sends. An empty host_id matches no other host. `process` is sent to peers on
    the same host only; empty: they do not watch it."""

    name: str
    boot_epoch: int
    host_id: str = ""
    process: str = ""


@dataclass(frozen=True)
class Authentication:
    """The authentication method that both ends must use. "tls" means certificates of both ends.
    A secret needs at least 16 bytes, since an eavesdropper can test guesses against a recorded proof offline.
    invalid_argument for an unknown method or an unsuitable secret."""

    method: Literal["none", "secret", "tls"] = "none"
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.method not in AUTH_METHODS:
            detail = f"authentication is none, secret or tls, not {self.method!r}"
        elif self.method == "secret" and len(self.secret) < MIN_SECRET_BYTES:
            detail = f"a secret has {MIN_SECRET_BYTES} bytes or more: take one from `openssl rand -hex 32`"
        elif self.method != "secret" and self.secret:
            detail = f"a secret was given, but the method is {self.method!r}"
        else:
            return
        raise setup_error("invalid_argument", operation="hello", detail=detail)

    @classmethod
    def by(cls, secret: bytes | str) -> Authentication:
        """By this secret; empty: none."""
        return cls("secret", secret.encode() if isinstance(secret, str) else secret) if secret else cls()


@dataclass(frozen=True)
class WireOffer:
    """A wire on which the server listens, and its address."""

    name: str
    address: str


@dataclass(frozen=True)
class Offer:
    """What the server offers an authenticated client; wires are best first."""

    session_id: int
    wires: tuple[WireOffer, ...]
    window: int
    max_message_bytes: int
    resume_timeout_s: float


@dataclass(frozen=True)
class HelloClient:
    """On the server: an authenticated client. If its purpose is "open", call welcome() or refuse()."""

    purpose: str
    name: str
    boot_epoch: int
    same_host: bool
    wires: tuple[str, ...]
    identity: str
    process: str = ""


@dataclass(frozen=True)
class ProbeReply:
    """On the client: the response to a probe."""

    name: str
    boot_epoch: int
    identity: str


@dataclass(frozen=True)
class Agreement:
    """On both ends: the result of a handshake. `wires` are the common ones, best first for the server.
    `peer_process` is a claim of the peer; empty: it is on another host, or does not know it."""

    version: int
    session_id: int
    key: bytes = field(repr=False)
    peer_name: str
    peer_boot_epoch: int
    same_host: bool
    wires: tuple[WireOffer, ...]
    window: int
    max_message_bytes: int
    resume_timeout_s: float
    peer_identity: str
    peer_process: str = ""
