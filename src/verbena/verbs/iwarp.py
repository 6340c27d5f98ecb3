"""Options of the iwarp wire."""

from __future__ import annotations

from dataclasses import dataclass

from verbena import _native
from verbena.verbs.stream_options import TLS_VARIABLES, StreamOptions, Tls, option


@dataclass(frozen=True, kw_only=True)
class IwarpOptions(StreamOptions):
    """Options of an iwarp context, for open_device().
    An option that is None takes its environment variable, VERBENA_IWARP_…, or else its default."""

    crc: bool | None = option(
        "request CRC32C on every segment; it is used if either end requests it", "CRC", "1; with TLS 0"
    )
    markers: bool | None = option(
        "request markers in received data; a peer that requests markers gets them in any case", "MARKERS", "0"
    )
    acknowledged: bool | None = option(
        "between Verbena ends, success means that the data is placed; off: plain iWARP", "ACKNOWLEDGED", "1"
    )
    mpa_revision: int | None = option(
        "the MPA revision to connect with, 1 or 2", "MPA_REVISION", "2", maximum=2
    )
    tls: Tls | None = option("encrypt every connection, and reject unencrypted ones", TLS_VARIABLES, "off")

    def to_native(self) -> _native.IwarpOptions:
        """Returns the native options, completed from the environment. StateError for a value out of range."""
        native = _native.IwarpOptions()
        self.apply_to(native)
        return native
