"""The replies of commands. Most are plain values: int, bytes (bulk string), str (simple string such as "OK"),
None, float, bool, list, dict and frozenset, encoded in the protocol of the client. The classes here are for
the other replies. An error is raised, or is an element of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias


class CommandError(Exception):
    """An error reply. Its text starts with the code in capitals: "ERR …" or "WRONGTYPE …"."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class WrongType(CommandError):
    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class NotAnInteger(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR value is not an integer or out of range")


class NotAFloat(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR value is not a valid float")


class InvalidSyntax(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR syntax error")


class Pairs:
    """Pairs of values: an array of arrays in RESP3, a flat array in RESP2."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[tuple[Any, Any]]) -> None:
        self.items = items


class NullArray:
    """A null array, such as the reply of a blocking pop after its timeout. In RESP3 it is the null."""

    __slots__ = ()


class Verbatim:
    """Text to be displayed, such as that of INFO: a verbatim string in RESP3, a bulk string in RESP2."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Push:
    """An out-of-band message: a push in RESP3, an array in RESP2."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items


class NoReply:
    """No reply now: it was written already, follows later, or there is none."""

    __slots__ = ()


NULL_ARRAY = NullArray()
NO_REPLY = NoReply()

Reply: TypeAlias = (
    int
    | bytes
    | str
    | float
    | list[Any]
    | tuple[Any, ...]
    | dict[Any, Any]
    | frozenset[Any]
    | CommandError
    | Pairs
    | NullArray
    | Verbatim
    | Push
    | NoReply
    | None
)
