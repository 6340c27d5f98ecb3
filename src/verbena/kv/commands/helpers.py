"""Conversions of arguments that several commands share."""

from __future__ import annotations

import re

from verbena.kv.commands.replies import CommandError, NotAnInteger

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")


def text(arg: bytes) -> str:
    """Decodes an argument without loss: encoding the text gives the same bytes."""
    return arg.decode("utf-8", "surrogateescape")


def shown(arg: bytes) -> str:
    """Decodes an argument for a message; invalid bytes are replaced."""
    return arg.decode("utf-8", "replace")


def integer(arg: bytes, *, error: str = "") -> int:
    """Parses a signed 64-bit integer. Raises CommandError, with `error` if given, if it is not one."""
    if _INTEGER.fullmatch(arg) and arg != b"-0":
        value = int(arg)
        if -(2**63) <= value < 2**63:
            return value
    raise CommandError(error) if error else NotAnInteger()
