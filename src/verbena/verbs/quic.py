"""Options of the quic wire."""

from __future__ import annotations

from dataclasses import dataclass

from verbena import _native, errors
from verbena.verbs.stream_options import TLS_VARIABLES, Path, StreamOptions, Tls, option

MAX_DATAGRAM_BYTES = 65_000
MIN_DATAGRAM_BYTES = 1200
MAX_WINDOW_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class QuicOptions(StreamOptions):
    """Options of a quic context, for open_device(). Certificates are required; changed files take effect for
    new connections. An option that is None takes its environment variable, VERBENA_QUIC_…, or else its
    default."""

    tls: Tls | None = option("our certificate, its key and the trusted authority", TLS_VARIABLES, "none")
    revoked: Path | None = option("a certificate revocation list", "TLS_REVOKED", "none")
    max_streams: int | None = option(
        "maximum number of queue pairs of a peer on one connection", "MAX_STREAMS", "256"
    )
    datagram_bytes: int | None = option(
        "payload bytes of a datagram, for paths that carry more than path MTU discovery finds",
        "DATAGRAM_BYTES",
        "up to 1452 as the path takes; 16000 on the loopback",
        maximum=MAX_DATAGRAM_BYTES,
    )
    window_bytes: int | None = option(
        "unread bytes that a stream may hold",
        "WINDOW_BYTES",
        "8 MiB; 1 MiB where the system allows small receive buffers only",
        maximum=MAX_WINDOW_BYTES,
    )

    def to_native(self) -> _native.QuicOptions:
        """Returns the native options, completed from the environment. StateError for a value out of range."""
        if self.datagram_bytes is not None and self.datagram_bytes < MIN_DATAGRAM_BYTES:
            detail = f"datagram_bytes is {self.datagram_bytes}; QUIC requires at least {MIN_DATAGRAM_BYTES}"
            raise errors.setup_error("invalid_argument", operation="open_device", detail=detail)
        native = _native.QuicOptions()
        self.apply_to(native)
        return native
