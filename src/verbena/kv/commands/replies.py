"""What a command may answer. Plain values do for most: int, bytes (a bulk string), str (a simple string such
as "OK"), None, float, bool, list, dict and frozenset; each client gets them in the protocol that it speaks.
The classes here are for the rest. An error is raised, or stands inside a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias


class CommandError(Exception):
    """An error reply: its text begins with the code in capitals, "ERR …" or "WRONGTYPE …"."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Refusal(CommandError):
    """An error reply, as clients raise it: it says what a redirection means to them."""

    def __str__(self) -> str:
        if self.text.split(" ", 1)[0] not in ("MOVED", "ASK"):
            return self.text
        return (
            f"{self.text}: the key is at another node of a cluster, and this client talks to one node only;"
            " use a cluster client on the nodes' ordinary ports, such as redis.RedisCluster"
        )


class WrongType(CommandError):
    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class NotAnInteger(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR value is not an integer or out of range")


class NotAFloat(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR value is not a valid float")


class SyntaxMistake(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR syntax error")


class Pairs:
    """Pairs: of lists for RESP3, one after the other for RESP2."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[tuple[Any, Any]]) -> None:
        self.items = items


class NullArray:
    """A null array: the reply of a blocking pop that timed out. RESP3 has a single null."""

    __slots__ = ()


class Verbatim:
    """Text for people, such as INFO's: a bulk string for RESP2."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Push:
    """A message that no request asked for; RESP2 gets it as an array."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items


class NoReply:
    """Nothing now: the answer was written already, comes later, or there is none."""

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
