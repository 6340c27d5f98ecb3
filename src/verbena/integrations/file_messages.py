"""Messages between file system and file server: a JSON object, followed by bytes. No I/O."""

from __future__ import annotations

import json
import struct
from typing import Any

CALL = "files"  # the only method; the field `do` selects the operation
MAX_DATA_BYTES = 16 << 20  # maximum bytes of data in one message

_LENGTH = struct.Struct("<I")


def pack(words: dict[str, Any], data: bytes | memoryview = b"") -> bytes:
    """Encodes a message."""
    text = json.dumps(words, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, data))


def unpack(message: bytes) -> tuple[dict[str, Any], memoryview]:
    """Returns a message's object and bytes. Raises ValueError if it is malformed."""
    if len(message) < _LENGTH.size:
        raise ValueError("the message is too short")
    end = _LENGTH.size + _LENGTH.unpack_from(message)[0]
    if end > len(message):
        raise ValueError("the message is truncated")
    try:
        words = json.loads(message[_LENGTH.size : end])
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if not isinstance(words, dict):
        raise ValueError("the message has no object")
    return words, memoryview(message)[end:]
