"""The codec "msgpack": None, booleans, numbers, text, bytes, lists and dictionaries. Tuples become lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import Buffer


class MsgpackCodec:
    name = "msgpack"

    def __init__(self, msgpack: ModuleType) -> None:
        self._pack, self._unpack = msgpack.packb, msgpack.unpackb

    def encode(self, value: Any) -> Buffer:
        """TypeError for other values."""
        return self._pack(value)  # type: ignore[no-any-return]

    def decode(self, data: bytes) -> Any:
        """ValueError unless the message is exact. Its lengths are bounded by that of the message."""
        return self._unpack(data, strict_map_key=False) if data else None


def make() -> MsgpackCodec:
    try:
        import msgpack  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        detail = 'msgpack, for codec="msgpack": pip install msgpack'
        raise setup_error("package_missing", operation="choose a codec", detail=detail) from error
    return MsgpackCodec(msgpack)
