"""Parses a configuration file: its tables, the position of each key, and its syntax errors."""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from verbena.config.excerpt import Excerpts
from verbena.config.lines import Path, Span, locate
from verbena.config.syntax import syntax_problem
from verbena.errors import ConfigurationProblem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_SYNTAX_ERRORS = 20
MAX_LINE_LENGTH = 10_000  # tomllib needs quadratic time for some long lines
# A statement that ends on its line, so that the rest of the text can be parsed without it.
_ONE_LINE = re.compile(r"\s*[A-Za-z0-9_.-]+\s*=(?!.*(?:\"\"\"|'''))[^\[\]{}]*")


@dataclass(frozen=True)
class Document:
    """A text, the tables parsed from it, and the syntax errors of the parts that could not be parsed."""

    name: str
    text: str
    tables: Mapping[str, Any] = field(default_factory=dict)
    spans: Mapping[Path, Span] = field(default_factory=dict)
    problems: tuple[ConfigurationProblem, ...] = ()

    def line_of(self, path: Path) -> int | None:
        """Returns the line of a key, or of the nearest enclosing table; None if neither is known."""
        span = self._span(path)
        return self._place(span.key[0])[0] if span else None

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> ConfigurationProblem:
        """Returns a problem of a parsed key, with an excerpt that marks the value, or the key with
        `at_key`."""
        key = ".".join(map(str, path))
        span = self._span(path)
        if span is None:
            return ConfigurationProblem(message, key, self.name)
        start, end = span.key if at_key or span.value[0] == span.value[1] else span.value
        line, column = self._place(start)
        shown = self._excerpts.line(line)
        if column > len(shown):
            return ConfigurationProblem(message, key, self.name, line)
        return ConfigurationProblem(
            message, key, self.name, line, column, shown, max(1, min(end - start, len(shown) + 1 - column))
        )

    @cached_property
    def _excerpts(self) -> Excerpts:
        return Excerpts(self.text.split("\n"))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def _span(self, path: Path) -> Span | None:
        return next((self.spans[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.spans), None)

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def read(data: bytes, name: str) -> Document:
    """Parses the bytes of a file. Never raises: errors are in `problems`. A byte order mark and CRLF are
    accepted."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 text: it has the byte {data[error.start]:#04x}"
        line = data.count(b"\n", 0, error.start) + 1
        return Document(name, "", problems=(ConfigurationProblem(message, source=name, line=line),))
    lines = text.split("\n")
    for number, line_text in enumerate(lines, start=1):
        if len(line_text) > MAX_LINE_LENGTH:
            message = f"the line is longer than {MAX_LINE_LENGTH:,} characters"
            return Document(name, text, problems=(ConfigurationProblem(message, source=name, line=number),))
    problems: list[ConfigurationProblem] = []
    while len(problems) < MAX_SYNTAX_ERRORS:
        rest = "\n".join(lines)
        try:
            tables = tomllib.loads(rest)
        except RecursionError:
            problems.append(ConfigurationProblem("the file is nested too deeply", source=name))
            break
        except ValueError as error:
            problem = syntax_problem(str(error), lines, name)
            problems.append(problem)
        else:
            return Document(name, rest, tables, locate(rest), tuple(problems))
        # Remove the wrong line and parse again, to report further errors too.
        if not problem.line or not _ONE_LINE.fullmatch(lines[problem.line - 1]):
            break
        lines[problem.line - 1] = ""
    return Document(name, text, problems=tuple(problems))
