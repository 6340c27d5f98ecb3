"""How a message of Dask's travels by a session: short frames in a call, long ones pulled by the receiver.
A long frame is lent where it lies and copied once, by the receiver, to where it stays. No I/O of its own."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from verbena.transport import RemoteRegion

SHORT_BYTES = 32 << 10  # a frame up to this costs less to copy than to lend
MOST_COPIED_BYTES = 512 << 10  # of one message's frames together

_COUNT = struct.Struct("<I")
_FRAME = struct.Struct("<QI")  # its length, and in how many regions it lies; none: its bytes follow
_REGION_BYTES = 40

Lend = Callable[[memoryview], Sequence[RemoteRegion]]


@dataclass(frozen=True)
class Frame:
    """A frame as it arrived: bytes that came along, or regions to pull one after the other."""

    length: int
    data: memoryview | None
    regions: tuple[RemoteRegion, ...] = ()


def encode(frames: Sequence[memoryview], lend: Lend) -> bytes:
    """A message; `lend` is asked for each frame that does not travel in it."""
    heads, bodies = [_COUNT.pack(len(frames))], []
    copied = 0
    for frame in frames:
        if frame.nbytes <= SHORT_BYTES and copied + frame.nbytes <= MOST_COPIED_BYTES:
            copied += frame.nbytes
            heads.append(_FRAME.pack(frame.nbytes, 0))
            bodies.append(frame)
        else:
            regions = lend(frame)
            heads.append(_FRAME.pack(frame.nbytes, len(regions)))
            heads += [region.to_bytes() for region in regions]
    return b"".join((*heads, *bodies))


def decode(message: bytes) -> list[Frame]:
    """What encode() made; ValueError if it is something else."""
    try:
        frames = list(_frames(memoryview(message)))
    except struct.error as error:
        raise ValueError(f"the message is cut short: {error}") from None
    return frames


def _frames(message: memoryview) -> Iterator[Frame]:
    (count,) = _COUNT.unpack_from(message)
    offset, heads = _COUNT.size, []
    for _ in range(count):
        length, regions = _FRAME.unpack_from(message, offset)
        offset += _FRAME.size
        end = offset + regions * _REGION_BYTES
        if end > len(message):
            raise ValueError("the message is cut short within its regions")
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
            raise ValueError("the message is cut short within its frames")
        yield Frame(length, message[offset : offset + length])
        offset += length
    if offset != len(message):
        raise ValueError(f"{len(message) - offset} bytes too many")
