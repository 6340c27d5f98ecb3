"""Commands as the clients of both forms build them, and what their replies mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    Word: TypeAlias = "str | bytes | int | float | Buffer"
    Command: TypeAlias = Sequence[Word]

_native.kv.use_command_error(CommandError)

FOREVER = -1.0  # a timeout for native code


def name_of(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def greeting(user: str, password: str, database: int) -> list[list[Word]]:
    """The commands with which each stream begins."""
    words: list[list[Word]] = []
    if user or password:
        words.append(["AUTH", *([user] if user else []), password])
    if database:
        words.append(["SELECT", database])
    return words


def set_options(ex: int | None, px: int | None, nx: bool, xx: bool, keepttl: bool) -> list[Word]:
    options: list[Word] = []
    if ex is not None:
        options += ["EX", ex]
    if px is not None:
        options += ["PX", px]
    return options + [word for word, wanted in (("NX", nx), ("XX", xx), ("KEEPTTL", keepttl)) if wanted]


def pairs(values: Mapping[str | bytes, Word]) -> list[Word]:
    return [word for pair in values.items() for word in pair]


def of_keys(
    command: str, indexes: Iterable[int], keys: Sequence[str | bytes], values: Sequence[Word] | None
) -> list[Word]:
    """A command for some of the keys, or of the pairs of keys and values."""
    if values is None:
        return [command, *(keys[i] for i in indexes)]
    return [command, *(word for i in indexes for word in (keys[i], values[i]))]


def was_stored(reply: Any) -> bool:
    """The reply to SET: nothing was stored if NX or XX forbade it."""
    return reply is not None


def nothing(_: Any) -> None:
    """The reply to MSET, which is always OK."""


def check_length(length: int, room: int) -> None:
    if length > room:
        raise ValueError(f"the value has {length} bytes, the buffer {room}")


def raise_first(replies: Iterable[Any]) -> None:
    """Raises the first error reply."""
    for reply in replies:
        if isinstance(reply, CommandError):
            raise reply
