"""Converts the errors of tomllib into problems that name the key and the correct notation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verbena.config.excerpt import MAX_LENGTH, Excerpts
from verbena.config.keys import Key
from verbena.config.kinds import Choice, Size, Text, printable
from verbena.config.model import KEYS
from verbena.errors import ConfigurationProblem

_PLACE = re.compile(r"(?s)(.*) \(at (?:line (\d+), column (\d+)|end of document)\)")
_PAIR = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=\s*([^#]*)")
_CLEAR = {
    r"Cannot declare .* twice": "the section already exists",
    r"Cannot overwrite a value": "the key is already set",
    r"Duplicate inline table key": "the key is already set",
    r"Expected '=' after a key": "a key must be followed by = and its value",
    r"Expected newline or end of document": "unexpected text after the value",
    r"Illegal character '\\n'": "the string is not closed on its line",
    r"Unterminated string": "the string is not closed",
}
_ABOUT_VALUE = ("Invalid value", "Expected newline or end of document", "Invalid date")


def syntax_problem(error: str, lines: Sequence[str], name: str) -> ConfigurationProblem:
    """Returns the problem for an error message of tomllib, with position and excerpt."""
    match = _PLACE.fullmatch(error)
    words = match[1] if match else error
    if match and match[2]:
        line, column = int(match[2]), int(match[3])
    else:
        line = next((number for number in range(len(lines), 1, -1) if lines[number - 1].strip()), 1)
        column = len(lines[line - 1]) + 1
    pair = _PAIR.match(lines[line - 1][:MAX_LENGTH]) if line <= len(lines) else None
    key = _key_named(pair[1]) if pair else None
    message = next((ours for theirs, ours in _CLEAR.items() if re.match(theirs, words)), _lowered(words))
    width = 1
    if pair and key and words.startswith(_ABOUT_VALUE):
        message = f"{key.name} must be {key.kind.allowed}{_how_to_write(key, pair[2].strip())}"
        column, width = pair.start(2) + 1, len(pair[2].rstrip())
    shown = Excerpts(lines).line(line)
    column = min(column, len(shown) + 1)
    width = max(1, min(width, len(shown) + 1 - column))
    return ConfigurationProblem(
        f"not TOML: {printable(message)}", key.path if key else "", name, line, column, shown, width
    )


def _how_to_write(key: Key, written: str) -> str:
    if written.casefold() in ("true", "false"):
        return ", in lower case"
    plain = bool(re.fullmatch(r"[\w.:/-]+", written)) and not key.kind.secret
    if plain and isinstance(key.kind, Size):
        return f'; write a size with a unit in quotes: "{written}"'
    if plain and isinstance(key.kind, (Choice, Text)):
        return f', in quotes: "{written}"'
    return ""


def _key_named(name: str) -> Key | None:
    """Returns the first key of that name in any section, for the kind of its value; None if there is none."""
    last = re.split(r"[.\s\"']+", name.strip(" \"'"))[-1]
    return next((key for key in KEYS.values() if key.name == last), None)


def _lowered(words: str) -> str:
    return f"{words[:1].lower()}{words[1:]}"
