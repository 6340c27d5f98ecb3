"""The envelope: the header of every message between members, the same bytes on every wire. Without I/O.
Input is untrusted until parsed: lengths, version, type and flags are checked, and a checksum over header and
payload."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import VerbenaError, setup_error
from verbena.shards.slots import SLOTS

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"VSHD"
VERSION = 1
# magic, version, type, flags, source, target, first and last shard, migration, segment, offset, total,
# sequence, boot epoch, payload length; the checksum comes last.
_HEADER = struct.Struct("<4sBBH20s20sHH16sIQQQQI")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
LONGEST_PAYLOAD = 1 << 30
NODE_BYTES, MIGRATION_BYTES = 20, 16
ABOUT_NODES = b"nodes"


class Kind(enum.IntEnum):
    """The type of a message. An answer has the kind of its request, and the flag ANSWER."""

    OFFER = 1  # a move begins: the target prepares, and answers with its windows
    SEGMENT = 2  # a piece of the base copy
    TAIL = 3  # a piece of the log after the base copy
    DIGEST = 4  # a checksum over the slots' content
    OWN = 5  # the map has given the slots to the target
    ABORT = 6  # the attempt failed: the target discards what it received
    GOSSIP = 7
    STATUS = 8  # a report of the node's moves or, if the payload is ABOUT_NODES, of the members
    LANDED = 9  # a segment is in the target's memory, in the window that the payload names
    YIELD = 10  # planned failover: the primary stops writing and answers with its position


class Flag(enum.IntFlag):
    NONE = 0
    ANSWER = 1
    LAST = 2  # the last of its kind in this migration
    REFUSED = 4  # the payload is the reason


_FLAGS = int(Flag.ANSWER | Flag.LAST | Flag.REFUSED)


@dataclass(frozen=True)
class Envelope:
    """A header with its payload. A node id has 20 bytes, a migration id 16."""

    kind: Kind
    source: bytes
    target: bytes
    first_shard: int
    last_shard: int
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
        head = _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.flags,
            self.source,
            self.target,
            self.first_shard,
            self.last_shard,
            self.migration,
            self.segment,
            self.offset,
            self.total,
            self.sequence,
            self.boot_epoch,
            len(self.payload),
        )
        return head + _CHECKSUM.pack(_native.crc32c(self.payload, _native.crc32c(head)))


def parse(data: Buffer) -> Envelope:
    """Parses exactly one envelope. ProtocolError names the fault."""
    found = parse_in_place(data)
    return replace(found, payload=bytes(found.payload))


def parse_in_place(data: Buffer) -> Envelope:
    """As parse(), but the payload is a view of `data`: the caller must keep those bytes unchanged."""
    view = memoryview(data).cast("B")
    if view.nbytes < HEADER_BYTES:
        raise _fault(f"{view.nbytes} bytes are shorter than a header of {HEADER_BYTES}")
    head = view[: _HEADER.size]
    fields = _HEADER.unpack(head)
    magic, version, kind, flags, source, target, first, last, migration = fields[:9]
    segment, offset, total, sequence, boot_epoch, length = fields[9:]
    if magic != MAGIC:
        raise _fault(f"it begins with {bytes(magic)!r}, not {MAGIC!r}")
    if version != VERSION:
        raise _fault(f"version {version} is unknown here: this node has {VERSION}")
    if length > LONGEST_PAYLOAD or view.nbytes != HEADER_BYTES + length:
        raise _fault(f"{view.nbytes} bytes where the header says {HEADER_BYTES} and {length}")
    (checksum,) = _CHECKSUM.unpack(view[_HEADER.size : HEADER_BYTES])
    payload = view[HEADER_BYTES:]
    if checksum != _native.crc32c(payload, _native.crc32c(head)):
        raise _fault("the checksum over header and payload is wrong")
    if kind not in Kind.__members__.values():
        raise _fault(f"type {kind} is unknown")
    if flags & ~_FLAGS:
        raise _fault(f"flags {flags:#x} are unknown")
    if not first <= last < SLOTS:
        raise _fault(f"{first}-{last} are not shards")
    if kind in (Kind.SEGMENT, Kind.TAIL) and offset + length > total > 0:
        raise _fault(f"{length} bytes at offset {offset} of {total}")
    return Envelope(
        kind=Kind(kind),
        source=source,
        target=target,
        first_shard=first,
        last_shard=last,
        migration=migration,
        payload=payload,  # type: ignore[arg-type]
        flags=Flag(flags),
        segment=segment,
        offset=offset,
        total=total,
        sequence=sequence,
        boot_epoch=boot_epoch,
    )


def _fault(detail: str) -> VerbenaError:
    return setup_error("bad_envelope", operation="read an envelope", detail=detail)
