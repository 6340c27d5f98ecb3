"""The envelope: the header of every message between members, the same bytes on every wire. Without I/O.
Native code packs and parses it. Input is untrusted until parsed: lengths, version, type and flags are
checked, and a checksum over header and payload."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verbena._native import kv as native

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_BYTES = native.ENVELOPE_HEADER_BYTES

Kind = native.EnvelopeKind  # an answer has the kind of its request, and the flag ANSWER


class Flag(enum.IntFlag):
    NONE = 0
    ANSWER = native.ENVELOPE_ANSWER
    LAST = native.ENVELOPE_LAST
    REFUSED = native.ENVELOPE_REFUSED


@dataclass(frozen=True)
class Envelope:
    """A header with its payload. A node id has 20 bytes, a migration id 16."""

    kind: Kind
    source: bytes
    target: bytes
    first_slot: int
    last_slot: int
    migration: bytes
    payload: bytes = b""
    flags: Flag = Flag.NONE
    segment: int = 0
    offset: int = 0
    total: int = 0
    sequence: int = 0
    boot_epoch: int = 0

    def __bytes__(self) -> bytes:
        return self.header() + self.payload

    def header(self) -> bytes:
        """The header for this payload, with the checksum over both."""
        return native.pack_envelope_header(**vars(self))


def parse(data: Buffer) -> Envelope:
    """Parses exactly one envelope. ProtocolError names the fault."""
    found = parse_in_place(data)
    return replace(found, payload=bytes(found.payload))


def parse_in_place(data: Buffer) -> Envelope:
    """As parse(), but the payload is a view of `data`: the caller must keep those bytes unchanged."""
    view = memoryview(data).cast("B")
    kind, source, target, first, last, migration, flags, *numbers = native.parse_envelope(view)
    payload: bytes = view[HEADER_BYTES:]  # type: ignore[assignment]
    return Envelope(kind, source, target, first, last, migration, payload, Flag(flags), *numbers)
