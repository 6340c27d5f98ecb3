"""What names mean that are not Verbena's own: the connection manager's events, devices' events, errors of the
system where verbs give them, the store's error replies, the registry's codes. Read from foreign.txt."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from importlib import resources

from verbena._explanations import Explanation


def _read(row: str) -> Explanation:
    name, what, causes, remedy = (part.strip() for part in row.split(" | "))
    return Explanation(name, what, tuple(causes.split("; ")), remedy)


# A row: name | what it means | causes, the likeliest first, between semicolons | remedy
_ROWS = (resources.files("verbena.cli.explanations") / "foreign.txt").read_text()
FOREIGN = {row.code: row for row in map(_read, _ROWS.splitlines())}
_REPLIES = "MOVED ASK CLUSTERDOWN TRYAGAIN CROSSSLOT READONLY NOREPLICAS MASTERDOWN LOADING MISCONF NOAUTH"
_REPLIES += " WRONGPASS NOPERM OOM WRONGTYPE EXECABORT BUSYKEY UNAUTHORIZED DENIED UNSUPPORTED UNAVAILABLE"
# Words that may be anybody's: a reply at the beginning of a line, or behind what clients write before it.
_BEFORE = r"^|^-|\(error\) |[Ee]rror from server: |\"code\": ?\"|errors?: ?|[Ee]rror "
_REPLY = re.compile(rf"(?:{_BEFORE})({_REPLIES.replace(' ', '|')})\b", re.MULTILINE)
_WORD = re.compile(r"\b[A-Z][A-Z_]{2,}\b")
_PLAIN = frozenset(_REPLIES.split())
_SAID = {
    os.strerror(getattr(errno, name)).lower(): name
    for name in FOREIGN
    if hasattr(errno, name)  # as the C library words them
}


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Names of the table in a text, each with its place."""
    for match in _WORD.finditer(text):
        if match[0] in FOREIGN and (match[0] not in _PLAIN or match[0] == text.strip()):
            yield match.start(), match[0]
    for match in _REPLY.finditer(text):
        yield match.start(1), match[1]


def said_in(text: str) -> Iterator[tuple[int, str]]:
    """The system's own words for its errors; for texts in which nothing else was found."""
    small = text.lower()
    for words, name in _SAID.items():
        if (place := small.find(words)) >= 0:
            yield place, name
