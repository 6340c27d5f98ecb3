"""Finds the positions of keys and values in a TOML text, which tomllib does not report.
The text has been parsed by tomllib, so this follows only its structure: strings, brackets and headers. In an
invalid text it stops at the error and keeps the positions found before."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^\\"]|\\[\s\S]|"{1,2}(?!"))*"""(?:"{1,2})?'),
    "'''": re.compile(r"'''(?:[^']|'{1,2}(?!'))*'''(?:'{1,2})?"),
    '"': re.compile(r'"(?:[^\\"\n]|\\[^\n])*"'),
    "'": re.compile(r"'[^'\n]*'"),
}


@dataclass(frozen=True)
class Span:
    """The offsets of a key and its value in the text. The value of a table header is empty."""

    key: tuple[int, int]
    value: tuple[int, int]


def locate(text: str) -> Mapping[Path, Span]:
    """Returns the first position of every table, key and array element, by path. Lines must end in \\n."""
    scan = _Scan(text)
    with contextlib.suppress(_InvalidToml, RecursionError):
        scan.document()
    return scan.found


class _InvalidToml(Exception):
    """The text is not valid TOML at this position."""


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, Span] = {}
        self.counts: dict[Path, int] = {}  # elements so far of each array of tables

    def document(self) -> None:
        table: Path = ()
        while self.skip(_BLANK) < len(self.text):
            if self.text.startswith("[", self.at):
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        start = self.skip(_SPACE)
        names = self.names()
        span = Span((start, self.at), (self.at, self.at))
        self.skip(_SPACE)
        self.expect("]" * brackets)
        path: Path = ()
        for name in names[:-1]:
            path = self.enter((*path, name))
            self.found.setdefault(path, span)
        path = (*path, names[-1])
        if brackets == 2:
            self.counts[path] = self.counts.get(path, 0) + 1
            self.found.setdefault(path, span)
        path = self.enter(path)
        self.found.setdefault(path, span)
        return path

    def enter(self, path: Path) -> Path:
        """Returns the path of the table that a header names; for an array of tables, its last element."""
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def pair(self, table: Path) -> None:
        start = self.at
        path = (*table, *self.names())
        end = self.at
        self.skip(_SPACE)
        self.expect("=")
        self.skip(_SPACE)
        for length in range(len(table) + 1, len(path)):
            self.found.setdefault(path[:length], Span((start, end), (end, end)))
        self.value(path, (start, end))

    def names(self) -> list[str]:
        names = [self.name()]
        while True:
            before = self.at
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                self.at = before
                return names
            self.at += 1
            self.skip(_SPACE)
            names.append(self.name())

    def name(self) -> str:
        start = self.at
        if self.text[start : start + 1] in ('"', "'"):
            self.string()
            try:
                return str(tomllib.loads(f"name = {self.text[start : self.at]}")["name"])
            except ValueError:
                raise _InvalidToml from None
        if self.skip(_BARE_KEY) < 0:
            raise _InvalidToml
        return self.text[start : self.at]

    def value(self, path: Path, key: tuple[int, int] | None) -> None:
        start = self.at
        opening = self.text[start : start + 1]
        if opening == "[":
            self.array(path)
        elif opening == "{":
            self.inline_table(path)
        elif opening in ('"', "'"):
            self.string()
        elif self.skip(_BARE_VALUE) == start:
            raise _InvalidToml
        end = start + len(self.text[start : self.at].rstrip())
        self.found.setdefault(path, Span(key or (start, end), (start, end)))

    def array(self, path: Path) -> None:
        self.at += 1
        for index in range(len(self.text)):
            self.skip(_BLANK)
            if self.take("]"):
                return
            self.value((*path, index), None)
            self.skip(_BLANK)
            if not self.take(","):
                self.expect("]")
                return

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self.skip(_BLANK)
            if self.take("}"):
                return
            self.pair(path)
            self.skip(_BLANK)
            if not self.take(","):
                self.expect("}")
                return

    def string(self) -> None:
        quote = next(quote for quote in _STRINGS if self.text.startswith(quote, self.at))
        if self.skip(_STRINGS[quote]) < 0:
            raise _InvalidToml

    def skip(self, pattern: re.Pattern[str]) -> int:
        """Moves past the match of a pattern and returns the new position; -1 if it does not match."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return -1
        self.at = match.end()
        return self.at

    def take(self, literal: str) -> bool:
        there = self.text.startswith(literal, self.at)
        self.at += len(literal) * there
        return there

    def expect(self, literal: str) -> None:
        if not self.take(literal):
            raise _InvalidToml
