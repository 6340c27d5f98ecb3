"""What can be completed after each command: read from the parsers, the same for all shells."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from verbena.cli.help.catalog import COMMANDS
from verbena.cli.help.parser import Parser
from verbena.config import KEYS, SECTIONS
from verbena.config.flags import key_of
from verbena.config.kinds import Choice, FilePath
from verbena.errors import EXPLANATIONS

_FILES = ("FILE", "PATH", "MODULE")
_FOLDERS = ("DIR",)


def _keys() -> tuple[str, ...]:
    return (*KEYS, *SECTIONS)


# Arguments that take a name from a table, by command and metavar.
_NAMES: dict[str, dict[str, Callable[[], tuple[str, ...]]]] = {
    "help": {"COMMAND": lambda: COMMANDS},
    "config show": {"KEY": _keys},
    "config reference": {"KEY": _keys},
    "explain": {"STATUS": lambda: tuple(EXPLANATIONS)},
}


@dataclass(frozen=True)
class Value:
    """What an option or argument takes: one of `choices`, or a path. Neither: any text."""

    choices: tuple[str, ...] = ()
    path: bool = False
    folder: bool = False


@dataclass(frozen=True)
class Option:
    """An option with its help in one line; `value` is None for a switch. `rare`: --help leaves it out."""

    names: tuple[str, ...]
    help: str
    value: Value | None
    rare: bool
    key: bool  # sets a configuration key, as an option of that name does for other commands


@dataclass
class Words:
    """A command, such as "shards move": its actions with their summaries, its options and arguments."""

    path: str
    commands: dict[str, str] = field(default_factory=dict)
    options: list[Option] = field(default_factory=list)
    arguments: list[Value] = field(default_factory=list)

    def names(self, *, rare: bool) -> list[str]:
        """The long names of the options; with `rare`, also of those that --help leaves out."""
        return [option.names[-1] for option in self.options if rare or not option.rare]


def words_of(parser: Parser, path: str = "") -> Iterator[Words]:
    """Yields the words of a parser and of all parsers below it; `path` names it without "verbena"."""
    found = Words(path)
    summaries = parser.summaries
    for action in parser._actions:
        if action.help == argparse.SUPPRESS and not action.option_strings:
            continue
        if isinstance(action, argparse._SubParsersAction):
            found.commands = {name: summaries[name] for name in action.choices}
        elif action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            rare = action in parser.advanced or action.help == argparse.SUPPRESS
            found.options.append(
                Option(tuple(action.option_strings), _one_line(action), value, rare, bool(key_of(action)))
            )
        else:
            table = _NAMES.get(path, {}).get(str(action.metavar))
            found.arguments.append(Value(table()) if table else _value(action))
    yield found
    for name, below in parser.commands.items():
        yield from words_of(below, f"{path} {name}".strip())


def _value(action: argparse.Action) -> Value:
    key = key_of(action)
    if key is not None:
        choices = key.kind.options if isinstance(key.kind, Choice) else ()
        return Value(choices, path=isinstance(key.kind, FilePath))
    if action.choices is not None:
        return Value(tuple(map(str, action.choices)))
    metavar = str(action.metavar or "").partition(",")[0]
    return Value(path=metavar in _FILES, folder=metavar in _FOLDERS)


def _one_line(action: argparse.Action) -> str:
    words = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
    return words.replace("%%", "%").partition(" (default")[0].rstrip(".")
