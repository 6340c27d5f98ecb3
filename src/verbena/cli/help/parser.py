"""`Parser`: the argparse parser of every command. --help shows the options that are used most and fits on a
screen; --help-all shows every option. A usage error is one line with a suggestion."""

from __future__ import annotations

import argparse
import copy
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

from verbena.cli.output import colour
from verbena.cli.output.colour import Colour, paint
from verbena.cli.output.failure import print_wrong_usage
from verbena.config.near import nearest

MAX_WIDTH = 100
_LAST = ("help", "help_all", "no_color")
_MISSING = "the following arguments are required"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks of texts, and puts the help of an option beside it if it is short enough."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size((MAX_WIDTH, 24)).columns, MAX_WIDTH)
        super().__init__(prog, max_help_position=36, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, action.dest.upper())
        return f"{', '.join(action.option_strings)} {value}"  # the value once


class _NoColour(argparse.Action):
    def __call__(self, *_: object) -> None:
        colour.forbid()


class _FullHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print_page(cast("Parser", parser).format_full_help())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Takes also `notes`, a text at the end of --help-all. Options that --help leaves out are in
    `advanced`."""

    def __init__(self, *args: Any, notes: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, "allow_abbrev": False, **kwargs})
        for action in self._actions:
            if action.dest == "help":
                action.help = "show this help"
        self.color = False  # Python 3.14 has colours by a rule of its own
        self.notes = notes
        self.advanced: set[argparse.Action] = set()
        self._short: dict[argparse.Action, argparse.Action] = {}  # copies with a help that fits on a line
        self._words: Sequence[str] = ()
        self.advanced.add(
            self.add_argument(
                "--no-color",
                action=_NoColour,
                nargs=0,
                default=argparse.SUPPRESS,
                help="print without colours",
            )
        )
        self._full = self.add_argument(
            "--help-all", action=_FullHelp, nargs=0, default=argparse.SUPPRESS, help="show every option"
        )

    def add_config(self, *usual: str, first: Iterable[str] = ()) -> None:
        """Adds the flags of all configuration keys; --help shows those of the keys `usual` only."""
        from verbena.config.flags import add_flags, short_help

        flags = add_flags(self, first=first)
        self.advanced |= {action for key, action in flags.items() if key not in usual}
        for key in usual:  # in the list of options, by short names that fit a line
            for group in self._action_groups:
                if flags[key] in group._group_actions:
                    group._group_actions.remove(flags[key])
            self._optionals._group_actions.append(flags[key])
            self._short[flags[key]] = copy.copy(flags[key])
            self._short[flags[key]].help = short_help(key)

    def hide(self, *actions: argparse.Action) -> None:
        """Leaves options out of --help."""
        self.advanced.update(actions)

    def command(self, name: str) -> Parser:
        """Returns the parser of a command or action; a usage error if there is none of that name."""
        choices = self.commands
        if name not in choices:
            self.no_command(name, choices)
        return choices[name]

    @property
    def commands(self) -> dict[str, Parser]:
        """The parsers of commands or actions, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    @property
    def summaries(self) -> dict[str, str]:
        """What each command or action does, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return {row.dest: row.help or "" for row in _expanded([action])}
        return {}

    def no_command(self, name: str, names: Iterable[str]) -> NoReturn:
        self.error(_with_guess(f"there is no command {name!r}", name, names))

    # Help

    def format_help(self) -> str:
        return self._render(full=False)

    def format_full_help(self) -> str:
        return self._render(full=True)

    def print_help(self, file: Any = None) -> None:
        print_page(self.format_help(), file)

    def _render(self, *, full: bool) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self._usage_line(), (), ())
        formatter.add_text(self.description)
        for title, actions in self._sections(full=full):
            formatter.start_section(title)
            formatter.add_arguments(sorted(_expanded(actions), key=lambda action: action.dest in _LAST))
            formatter.end_section()
        formatter.add_text(self.epilog)
        if full:
            formatter.add_text(self.notes)
        return formatter.format_help()

    def _sections(self, *, full: bool) -> list[tuple[str | None, list[argparse.Action]]]:
        """The groups of --help-all; for --help arguments and options, without what is left out."""
        if full:
            return [(group.title, group._group_actions) for group in self._action_groups]
        more = bool(self.notes) or len(self.advanced) > 1  # else --help-all adds --no-color only
        shown = [
            self._short.get(action, action)
            for group in self._action_groups
            for action in group._group_actions
            if action not in self.advanced and (more or action is not self._full)
        ]
        return [
            ("actions" if self.commands else "arguments", [a for a in shown if not a.option_strings]),
            ("options", [action for action in shown if action.option_strings]),
        ]

    def _usage_line(self) -> str:
        words = [_positional(action) for action in self._actions if not action.option_strings]
        return " ".join(("%(prog)s", "[options]", *words))

    # Usage errors

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self._words = list(sys.argv[1:] if args is None else args)
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(self._unknown(extra))
        return found, extra

    def error(self, message: str) -> NoReturn:
        if message.startswith(_MISSING) and (unknown := self._unknown_options(self._words)):
            message = self._unknown(unknown)  # the cause, if an argument was taken for its value
        if message.startswith(_MISSING):
            message = message.replace(_MISSING, "missing")
        remedy = f"{self.prog} --help" if " " in self.prog else f"{self.prog} help"
        print_wrong_usage(self.prog, message, remedy=remedy, as_json="--json" in self._words)
        self.exit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            what = "command" if action.metavar == "COMMAND" else "action"
            message = _with_guess(f"there is no {what} {value!r}", value, names)
            if "did you mean" not in message:
                message += f": {', '.join(names)}"
            raise argparse.ArgumentError(None, message)
        message = _with_guess(f"{value!r} is not one of {', '.join(names)}", str(value), names)
        raise argparse.ArgumentError(action if action.option_strings else None, message)

    def _unknown_options(self, words: Sequence[str]) -> list[str]:
        if any(action.nargs == argparse.REMAINDER for action in self._actions) or self.commands:
            return []
        before = words[: words.index("--")] if "--" in words else words
        return [
            word
            for word in before
            if re.match(r"--[a-z]", word) and word.partition("=")[0] not in self._option_string_actions
        ]

    def _unknown(self, words: Sequence[str]) -> str:
        name = words[0].partition("=")[0]
        if not name.startswith("-") or name == "-":
            return f"unexpected argument {words[0]!r}"
        usual = self._names(full=False)
        guess = _guess(name, usual) or _guess(name, self._names(full=True))
        return f"there is no option {name}" + (f"; did you mean {guess}?" if guess else "")

    def _names(self, *, full: bool) -> list[str]:
        shown = [action for action in self._actions if full or action not in self.advanced]
        return [name for action in shown for name in action.option_strings if name.startswith("--")]


def _expanded(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    """Replaces the argument ACTION by a row for each action."""
    found = list[argparse.Action]()
    for action in actions:
        rows = vars(action).get("_choices_actions")  # of add_subparsers()
        found += [action] if rows is None else rows
    return found


def print_page(page: str, file: Any = None) -> None:
    """Prints a help page, with bold headings where colour is enabled."""
    stream = file or sys.stdout
    heading = re.compile(r"^\S[^\n]*:$", re.MULTILINE)
    print(heading.sub(lambda found: paint(found[0], Colour.BOLD, stream), page), end="", file=stream)


def _positional(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    name = str(action.metavar or choices)
    if isinstance(action, argparse._SubParsersAction):
        return f"{name} …"
    forms = {"?": f"[{name}]", "*": f"[{name} …]", argparse.REMAINDER: f"[{name} …]"}
    return forms.get(str(action.nargs), name)


def _guess(name: str, names: Iterable[str]) -> str | None:
    known = list(names)
    longer = [one for one in known if one.startswith(name)]
    return longer[0] if len(longer) == 1 else nearest(name, known)


def _with_guess(message: str, name: str, names: Iterable[str]) -> str:
    guess = _guess(name, names)
    return f"{message}; did you mean {guess!r}?" if guess else message
