"""What goes into the hello and what comes out of it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from verbena.errors import setup_error
from verbena.transport.handshake.frames import AUTH_METHODS

MIN_SECRET_BYTES = 16


@dataclass(frozen=True)
class NodeInfo:
    """This node, as it introduces itself. An empty host_id is never the same host."""

    name: str
    boot_epoch: int
    host_id: str = ""


@dataclass(frozen=True)
class Authentication:
    """What this end demands of the other, and shows it. "tls" means certificates both ways.
    A secret needs 16 bytes or more: whoever listens can try guesses against a proof at leisure."""

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


@dataclass(frozen=True)
class WireOffer:
    """A wire on which the server listens, and where."""

    name: str
    address: str


@dataclass(frozen=True)
class Offer:
    """What the server grants a client that has proven itself; wires best first."""

    session_id: int
    wires: tuple[WireOffer, ...]
    window: int
    max_message_bytes: int
    resume_timeout_s: float


@dataclass(frozen=True)
class Caller:
    """Server: a client that has proven itself. With purpose "open" it waits for welcome() or refuse()."""

    purpose: str
    name: str
    boot_epoch: int
    same_host: bool
    wires: tuple[str, ...]
    identity: str


@dataclass(frozen=True)
class Alive:
    """Client: the answer to a probe."""

    name: str
    boot_epoch: int
    identity: str


@dataclass(frozen=True)
class Agreement:
    """Both: the hello succeeded. `wires` are those that both ends have, in the server's order, best first."""

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
