"""Colour, by one rule for all commands: `--no-color` and NO_COLOR switch it off, FORCE_COLOR switches it on,
and otherwise only a terminal gets it."""

from __future__ import annotations

import enum
import os
from typing import TextIO


class Colour(enum.Enum):
    """The code of an SGR sequence."""

    BOLD = "1"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


def forbid() -> None:
    """Switches colour off for this process and those that it starts: `--no-color` was given."""
    os.environ["NO_COLOR"] = "1"


def enabled(stream: TextIO) -> bool:
    """Whether text for `stream` is coloured. An empty NO_COLOR or FORCE_COLOR counts as not set."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(words: str, colour: Colour, stream: TextIO) -> str:
    """Returns the words in a colour, or unchanged if `stream` gets none."""
    return f"\x1b[{colour.value}m{words}\x1b[0m" if enabled(stream) else words
