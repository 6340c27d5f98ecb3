"""Options that the iwarp and quic wires share: TLS files and limits for peers.
An option that is None takes the value of its environment variable, or else its default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from verbena import _native, errors

Path = str | os.PathLike[str]
MAXIMUM = 1_000_000
TLS_VARIABLES = "TLS_…, see below"


def option(meaning: str, variable: str, default: str, *, maximum: int = MAXIMUM, value: Any = None) -> Any:
    """Returns a dataclass field for one option: its meaning, its environment variable without the prefix of
    the wire, and its documented default."""
    return field(
        default=value,
        metadata={"meaning": meaning, "variable": variable, "default": default, "maximum": maximum},
    )


@dataclass(frozen=True, kw_only=True)
class Tls:
    """TLS 1.3 with certificates in PEM files, for every connection of a context.
    A dialled peer must show a certificate of `authority` for the name or address that was dialled."""

    certificate: Path = field(
        metadata={
            "meaning": "our certificate, then the chain to the authority",
            "variable": "TLS_CERTIFICATE",
            "default": "",
        }
    )
    key: Path = field(metadata={"meaning": "its private key", "variable": "TLS_KEY", "default": ""})
    authority: Path = field(
        metadata={
            "meaning": "certificates of trusted authorities",
            "variable": "TLS_AUTHORITY",
            "default": "",
        }
    )
    require_peer_certificate: bool = option(
        "whether connecting peers must show a certificate", "TLS_REQUIRE_PEER_CERTIFICATE", "1", value=True
    )

    def to_native(self) -> _native.IwarpTlsOptions:
        return _native.IwarpTlsOptions(
            os.fspath(self.certificate),
            os.fspath(self.key),
            os.fspath(self.authority),
            self.require_peer_certificate,
        )


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Limits for peers, as both wires have them."""

    handshake_timeout_s: float | None = option(
        "time limit for a connecting peer to complete the handshake and send its request",
        "HANDSHAKE_TIMEOUT_S",
        "5",
    )
    stall_timeout_s: float | None = option(
        "time limit for a segment to arrive completely after its first byte", "STALL_TIMEOUT_S", "30"
    )
    dead_peer_timeout_s: float | None = option(
        "time without any response after which a peer counts as dead", "DEAD_PEER_TIMEOUT_S", "60"
    )
    max_handshakes: int | None = option(
        "maximum number of unfinished handshakes; beyond it the longest silent one is closed",
        "MAX_HANDSHAKES",
        "1024",
    )

    def apply_to(self, native: object) -> None:
        """Copies the given options to their native form. StateError for a value out of range."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None:
                continue
            name, maximum = each.name, each.metadata["maximum"]
            if isinstance(value, Tls):
                value = value.to_native()
            elif isinstance(value, (str, os.PathLike)):
                value = os.fspath(value)
            elif name.endswith("_s"):
                value = max(1, round(_positive(name, value, maximum) * 1000))
                name = name[:-1] + "ms"
            elif not isinstance(value, bool):
                value = _positive(name, value, maximum)
            setattr(native, name, value)


def _positive(name: str, value: float, maximum: int) -> float:
    if 0 < value <= maximum:
        return value
    detail = f"{name} is {value}; it must be above 0 and at most {maximum:,}"
    raise errors.setup_error("invalid_argument", operation="open_device", detail=detail)
