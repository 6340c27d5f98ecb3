"""What the quic wire can be told when it is opened. The environment gives what is not said here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from verbena import _native, errors
from verbena.verbs.iwarp import Path, Tls, put

LONGEST_DATAGRAM = 65_000
SHORTEST_DATAGRAM = 1200
LARGEST_WINDOW = 1 << 30


def _about(what: str, variable: str, default: str) -> dict[str, str]:
    return {"what": what, "variable": f"VERBENA_QUIC_{variable}", "default": default}


@dataclass(frozen=True, kw_only=True)
class QuicOptions:
    """Options of a quic context, for open_device(). None: as the environment says, or else the default.
    Certificates there must be. Their files are read again when they have changed, for new connections."""

    tls: Tls | None = field(
        default=None,
        metadata=_about("our certificate, its key, and the authority we believe", "TLS_…, see below", "none"),
    )
    revoked: Path | None = field(
        default=None,
        metadata=_about("a list of certificates that the authority has taken back", "TLS_REVOKED", "none"),
    )
    handshake_timeout_s: float | None = field(
        default=None,
        metadata=_about(
            "how long a caller has to shake hands, and then to say what it wants", "HANDSHAKE_TIMEOUT_S", "5"
        ),
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
        default=None, metadata=_about("how many callers may be undecided at once", "MAX_HANDSHAKES", "1024")
    )
    max_streams: int | None = field(
        default=None,
        metadata=_about("how many queue pairs a peer may have on one connection", "MAX_STREAMS", "256"),
    )
    datagram_bytes: int | None = field(
        default=None,
        metadata=_about(
            "bytes in a datagram, for paths that are known to take more than is found out",
            "DATAGRAM_BYTES",
            "up to 1452 as the path takes; 16000 on the loopback",
        ),
    )
    window_bytes: int | None = field(
        default=None,
        metadata=_about(
            "unread bytes that a stream may hold",
            "WINDOW_BYTES",
            "8 MiB; 1 MiB where the system allows small receive buffers only",
        ),
    )

    def to_native(self) -> _native.QuicOptions:
        """The native form, completed from the environment; StateError for a value that makes no sense."""
        native = _native.QuicOptions()
        if self.datagram_bytes is not None and self.datagram_bytes < SHORTEST_DATAGRAM:
            detail = f"datagram_bytes is {self.datagram_bytes}; QUIC wants at least {SHORTEST_DATAGRAM}"
            raise errors.setup_error("invalid_argument", operation="open_device", detail=detail)
        most = {"datagram_bytes": LONGEST_DATAGRAM, "window_bytes": LARGEST_WINDOW}
        for option in fields(self):
            put(native, option.name, getattr(self, option.name), most.get(option.name, 1_000_000))
        return native
