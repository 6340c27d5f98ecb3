"""The codec of a session's calls, chosen by name, and its place in the names of methods."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from verbena.errors import setup_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

OWN_PREFIX = "verbena."  # of methods that every listener serves, with bytes


@runtime_checkable
class Codec(Protocol):
    """`name` is the same at both ends, and differs from that of other codecs. Either function may raise."""

    name: str

    def encode(self, value: Any, /) -> Buffer: ...

    def decode(self, data: bytes, /) -> Any: ...


# The codecs with a name, except "bytes", which passes payloads on as they are.
_MODULES = {"numpy": "numpy_codec", "msgpack": "msgpack_codec", "pickle5": "pickle5"}
NAMES = ("bytes", *_MODULES)


def codec_for(chosen: str | Codec) -> Codec | None:
    """Returns the codec; None for "bytes". StateError for another name, UnavailableError if its package is
    missing."""
    if chosen == "bytes":
        return None
    if isinstance(chosen, str):
        if chosen not in _MODULES:
            detail = f"codec {chosen!r} is none of {', '.join(NAMES)}"
            raise setup_error("invalid_argument", operation="choose a codec", detail=detail)
        make: Callable[[], Codec] = import_module(f"verbena.transport.codecs.{_MODULES[chosen]}").make
        return make()
    if not isinstance(chosen, Codec) or not isinstance(chosen.name, str) or not chosen.name:
        detail = f"{type(chosen).__name__} lacks name, encode() or decode()"
        raise setup_error("invalid_argument", operation="choose a codec", detail=detail)
    return chosen


def method_name(method: str, codec: Codec | None) -> str:
    """Returns the name under which the ends of a session know a method. It contains the codec, so that a call
    between ends with different codecs is refused before anything is decoded."""
    return method if codec is None or method.startswith(OWN_PREFIX) else f"{method} ({codec.name})"
