"""What the iwarp wire can be told when it is opened. The environment gives what is not said here."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields

from verbena import _native, errors

Path = str | os.PathLike[str]
MOST = 1_000_000


def _about(what: str, variable: str, default: str) -> dict[str, str]:
    return {"what": what, "variable": f"VERBENA_IWARP_{variable}", "default": default}


@dataclass(frozen=True, kw_only=True)
class Tls:
    """TLS 1.3 for every connection of a context, with certificates in PEM files; no other is taken then.
    Whoever is called must show a certificate of `authority` for the name or address it was called by."""

    certificate: Path = field(
        metadata=_about("ours, then those that lead from it to the authority", "TLS_CERTIFICATE", "")
    )
    key: Path = field(metadata=_about("its private key", "TLS_KEY", ""))
    authority: Path = field(metadata=_about("certificates of whom we believe", "TLS_AUTHORITY", ""))
    require_peer_certificate: bool = field(
        default=True,
        metadata=_about("whether callers must show a certificate, too", "TLS_REQUIRE_PEER_CERTIFICATE", "1"),
    )


@dataclass(frozen=True, kw_only=True)
class IwarpOptions:
    """Options of an iwarp context, for open_device(). None: as the environment says, or else the default."""

    crc: bool | None = field(
        default=None,
        metadata=_about(
            "ask for CRC32C on every segment; a peer that asks for it gets it all the same",
            "CRC",
            "1; with TLS 0",
        ),
    )
    markers: bool | None = field(
        default=None,
        metadata=_about(
            "ask for markers in what comes in; a peer that asks for them gets them all the same",
            "MARKERS",
            "0",
        ),
    )
    acknowledged: bool | None = field(
        default=None,
        metadata=_about("between Verbena ends, success means placed; off: plain iWARP", "ACKNOWLEDGED", "1"),
    )
    mpa_revision: int | None = field(
        default=None, metadata=_about("which MPA to call with, 1 or 2", "MPA_REVISION", "2")
    )
    tls: Tls | None = field(
        default=None,
        metadata=_about("encrypt every connection, and take no other", "TLS_…, see below", "off"),
    )
    handshake_timeout_s: float | None = field(
        default=None,
        metadata=_about("how long a caller has to say what it wants", "HANDSHAKE_TIMEOUT_S", "5"),
    )
    stall_timeout_s: float | None = field(
        default=None,
        metadata=_about("how long a segment that has begun may take to be complete", "STALL_TIMEOUT_S", "30"),
    )
    dead_peer_timeout_s: float | None = field(
        default=None,
        metadata=_about(
            "how long a peer may answer nothing before it is given up", "DEAD_PEER_TIMEOUT_S", "60"
        ),
    )
    max_handshakes: int | None = field(
        default=None,
        metadata=_about(
            "how many callers may be undecided at once; then the one silent longest goes",
            "MAX_HANDSHAKES",
            "1024",
        ),
    )

    def to_native(self) -> _native.IwarpOptions:
        """The native form, completed from the environment; StateError for a value that makes no sense."""
        native = _native.IwarpOptions()
        for option in fields(self):
            most = 2 if option.name == "mpa_revision" else MOST
            put(native, option.name, getattr(self, option.name), most)
        return native


def put(native: object, name: str, value: object, most: int = MOST) -> None:
    """Sets one option, if it is given, in the form that the native side has it."""
    if value is None:
        return
    if isinstance(value, Tls):
        value = _native.IwarpTlsOptions(
            os.fspath(value.certificate),
            os.fspath(value.key),
            os.fspath(value.authority),
            value.require_peer_certificate,
        )
    elif isinstance(value, (str, os.PathLike)):
        value = os.fspath(value)
    elif isinstance(value, float) or name.endswith("_s"):
        name, value = name[:-1] + "ms", _milliseconds(name, float(value))  # type: ignore[arg-type]
    elif not isinstance(value, bool):
        value = _positive(name, value, most)  # type: ignore[arg-type]
    setattr(native, name, value)


def _milliseconds(name: str, seconds: float) -> int:
    return max(1, round(_positive(name, seconds) * 1000))


def _positive(name: str, value: float, most: int = MOST) -> float:
    if 0 < value <= most:
        return value
    detail = f"{name} is {value}; it must be above 0 and at most {most:,}"
    raise errors.setup_error("invalid_argument", operation="open_device", detail=detail)
