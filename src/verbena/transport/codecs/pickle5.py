"""The codec "pickle5": any Python value, by pickle's protocol 5, with large buffers beside it. Decoding runs
code that the peer chose: only for peers that may run any program here. Arrays arrive as read-only views."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_COUNT = struct.Struct("<Q")
_ALIGNMENT = 16
_MAX_BUFFERS = 65_536


class Pickle5Codec:
    name = "pickle5"

    def encode(self, value: Any) -> Buffer:
        """A count and lengths, then the parts, each aligned: the pickle, and its buffers. Errors as
        pickle.dumps(); ValueError for too many buffers."""
        if value is None:
            return b""
        beside: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=beside.append)
        parts = [memoryview(pickled), *(one.raw() for one in beside)]
        if len(parts) > _MAX_BUFFERS:
            raise ValueError(f"a value has {_MAX_BUFFERS} buffers at most")
        message: list[bytes | memoryview] = [struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts))]
        length = len(message[0])
        for part in parts:
            padding = bytes(-length % _ALIGNMENT)
            message += (padding, part)
            length += len(padding) + len(part)
        return b"".join(message)

    def decode(self, data: bytes) -> Any:
        """ValueError unless the parts are exact; errors as pickle.loads()."""
        if not data:
            return None
        parts = _parts(memoryview(data))
        return pickle.loads(parts[0], buffers=parts[1:])


def make() -> Pickle5Codec:
    return Pickle5Codec()


def _parts(data: memoryview) -> list[memoryview]:
    count = _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else 0
    at = _COUNT.size * (count + 1)
    if not 0 < count <= _MAX_BUFFERS or len(data) < at:
        raise ValueError("the lengths of the parts are incomplete")
    parts = []
    for length in struct.unpack_from(f"<{count}Q", data, _COUNT.size):
        at += -at % _ALIGNMENT
        if length > len(data) - at:
            raise ValueError("a part is longer than the message")
        parts.append(data[at : at + length])
        at += length
    if at != len(data):
        raise ValueError("the message is longer than its parts")
    return parts
