"""The requests and replies of a session with a codec, for both of its forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.transport.codecs.codec import OWN_PREFIX, Codec, method_name
from verbena.transport.requests import method_number

if TYPE_CHECKING:
    from typing_extensions import Buffer


def encoded_call(codec: Codec, method: str, value: Any) -> tuple[int, Buffer]:
    """Returns method number and payload. Verbena's own methods take bytes. Errors as codec.encode()."""
    if method.startswith(OWN_PREFIX):
        return method_number(method), b"" if value is None else value
    return method_number(method_name(method, codec)), codec.encode(value)


def decoded_reply(codec: Codec, method: str, reply: bytes, peer: str) -> Any:
    """ProtocolError if the codec cannot decode it."""
    if method.startswith(OWN_PREFIX):
        return reply
    try:
        return codec.decode(reply)
    except Exception as error:
        detail = f"codec {codec.name}: {type(error).__name__}: {error}"
        raise setup_error("bad_message", operation="call", peer=peer, detail=detail) from error
