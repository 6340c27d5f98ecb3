"""Explains names that are not codes of Verbena: events of librdmacm and libibverbs, errno values,
error replies of the store, error codes of the registry. The rows are in foreign.txt."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from importlib import resources

from verbena.errors import Explanation


def _read(row: str) -> Explanation:
    name, what, causes, remedy = (part.strip() for part in row.split(" | "))
    return Explanation(name, None, what, tuple(causes.split("; ")), remedy)


# A row: name | what happened | causes, likeliest first, separated by semicolons | remedy
_ROWS = (resources.files("verbena.cli.explanations") / "foreign.txt").read_text()
FOREIGN = {row.code: row for row in map(_read, _ROWS.splitlines())}
_REPLIES = "MOVED ASK CLUSTERDOWN TRYAGAIN CROSSSLOT READONLY NOREPLICAS MASTERDOWN LOADING MISCONF NOAUTH"
_REPLIES += " WRONGPASS NOPERM OOM WRONGTYPE EXECABORT BUSYKEY UNAUTHORIZED DENIED UNSUPPORTED UNAVAILABLE"
# These are also plain words, so they count only at the start of a line or after a prefix that clients print.
_BEFORE = r"^|^-|\(error\) |[Ee]rror from server: |\"code\": ?\"|errors?: ?|[Ee]rror "
_REPLY = re.compile(rf"(?:{_BEFORE})({_REPLIES.replace(' ', '|')})\b", re.MULTILINE)
_WORD = re.compile(r"\b[A-Z][A-Z_]{2,}\b")
_PLAIN = frozenset(_REPLIES.split())
_MESSAGES = {
    os.strerror(getattr(errno, name)).lower(): name
    for name in FOREIGN
    if hasattr(errno, name)  # the message of the C library
}


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Yields the positions and names of table entries in a text."""
    for match in _WORD.finditer(text):
        if match[0] in FOREIGN and (match[0] not in _PLAIN or match[0] == text.strip()):
            yield match.start(), match[0]
    for match in _REPLY.finditer(text):
        yield match.start(1), match[1]


def messages_in(text: str) -> Iterator[tuple[int, str]]:
    """Yields errno names by the C library's message; for texts in which no name was found."""
    small = text.lower()
    for message, name in _MESSAGES.items():
        if (place := small.find(message)) >= 0:
            yield place, name
