"""Encodes a Dask message for a session: short frames travel in the call, long ones are pulled by the
receiver. A long frame is exposed in place and copied once, by the receiver, to its destination. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from verbena.transport import RemoteRegion

SHORT_BYTES = 32 << 10  # up to this size, copying a frame is cheaper than exposing it
MAX_COPIED_BYTES = 512 << 10  # limit for all copied frames of one message

_COUNT = struct.Struct("<I")
_FRAME = struct.Struct("<QI")  # length and number of regions; with 0 regions the bytes are in the message
_REGION_BYTES = 40

Lend = Callable[[memoryview], Sequence[RemoteRegion]]


@dataclass(frozen=True)
class Frame:
    """A received frame: bytes from the message, or regions to pull in order."""

    length: int
    data: memoryview | None
    regions: tuple[RemoteRegion, ...] = ()


def encode(frames: Sequence[memoryview], lend: Lend) -> bytes:
    """Encodes a message; calls `lend` for each frame that is not copied into it."""
    heads, bodies = [_COUNT.pack(len(frames))], []
    copied = 0
    for frame in frames:
        if frame.nbytes <= SHORT_BYTES and copied + frame.nbytes <= MAX_COPIED_BYTES:
            copied += frame.nbytes
            heads.append(_FRAME.pack(frame.nbytes, 0))
            bodies.append(frame)
        else:
            regions = lend(frame)
            heads.append(_FRAME.pack(frame.nbytes, len(regions)))
            heads += [region.to_bytes() for region in regions]
    return b"".join((*heads, *bodies))


def decode(message: bytes) -> list[Frame]:
    """Decodes a message of encode(). Raises ValueError if it is malformed."""
    try:
        frames = list(_frames(memoryview(message)))
    except struct.error as error:
        raise ValueError(f"the message is truncated: {error}") from None
    return frames


def _frames(message: memoryview) -> Iterator[Frame]:
    (count,) = _COUNT.unpack_from(message)
    offset, heads = _COUNT.size, []
    for _ in range(count):
        length, regions = _FRAME.unpack_from(message, offset)
        offset += _FRAME.size
        end = offset + regions * _REGION_BYTES
        if end > len(message):
            raise ValueError("the message is truncated within its regions")
        parts = tuple(
            RemoteRegion.from_bytes(bytes(message[at : at + _REGION_BYTES]))
            for at in range(offset, end, _REGION_BYTES)
        )
        if parts and sum(len(part) for part in parts) != length:
            raise ValueError("a frame's regions are not as long as the frame")
        heads.append((length, parts))
        offset = end
    for length, parts in heads:
        if parts:
            yield Frame(length, None, parts)
            continue
        if offset + length > len(message):
            raise ValueError("the message is truncated within its frames")
        yield Frame(length, message[offset : offset + length])
        offset += length
    if offset != len(message):
        raise ValueError(f"{len(message) - offset} bytes too many")
