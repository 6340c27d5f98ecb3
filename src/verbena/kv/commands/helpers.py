"""What several commands share: numbers and words out of arguments."""

from __future__ import annotations

import re

from verbena.kv.commands.replies import CommandError, NotAnInteger

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")


def text(word: bytes) -> str:
    """For messages and names: nothing is lost, and it can be written back."""
    return word.decode("utf-8", "surrogateescape")


def shown(word: bytes) -> str:
    """For messages that go to people."""
    return word.decode("utf-8", "replace")


def integer(word: bytes, *, error: str = "") -> int:
    """A signed number of 64 bits. CommandError, with `error` if given, if it is none."""
    if _INTEGER.fullmatch(word) and word != b"-0":
        value = int(word)
        if -(2**63) <= value < 2**63:
            return value
    raise CommandError(error) if error else NotAnInteger()
