"""Excerpts of a file for messages: shortened, without control characters and without secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from verbena.config.model import KEYS
from verbena.config.near import nearest

MAX_LENGTH = 200
_SECRETS = {key.name for key in KEYS.values() if key.kind.secret}
_OPEN = {key.name for key in KEYS.values()} - _SECRETS
_ASSIGNED = re.compile(r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]{1,64})[\"']?\s*=\s*")
_TELLING = re.compile(r"secret|passw|token|credential", re.IGNORECASE)


class Excerpts:
    """The lines of one file."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def line(self, number: int) -> str:
        """Returns a line with possible secrets removed; an empty text if the file has a secret in a
        multi-line string, because any line may then belong to it."""
        if not 0 < number <= len(self._lines) or self._has_long_secret:
            return ""
        text = self._lines[number - 1][:MAX_LENGTH]
        for match in _ASSIGNED.finditer(text):
            if _is_secret(match[1]):
                text = f"{text[: match.end()]}…"
                break
        return "".join(letter if letter.isprintable() or letter == "\t" else "·" for letter in text).rstrip()

    @cached_property
    def _has_long_secret(self) -> bool:
        """Whether a secret is a multi-line string, so that any line may be a part of it."""
        return any(
            line.startswith(('"""', "'''"), match.end()) and _is_secret(match[1])
            for line in self._lines
            if '"""' in line or "'''" in line
            for match in _ASSIGNED.finditer(line)
        )


def _is_secret(name: str) -> bool:
    """Whether a key of this name, possibly misspelt, contains a secret."""
    if name in _OPEN:
        return False
    return name in _SECRETS or bool(_TELLING.search(name)) or nearest(name, _SECRETS) is not None
