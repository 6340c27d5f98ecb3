"""Help pages, the version, and suggestions for misspelt commands and options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

import pytest

from verbena.cli.app import build_parser
from verbena.cli.help.catalog import COMMANDS, GROUPS
from verbena.cli.help.parser import Parser
from verbena.config import KEYS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCREEN = (24, 100)
QUICK = (("help",), ("version",), ("--version",), ("help", "serve"), ())


def every_parser(parser: Parser) -> Iterator[Parser]:
    for child in parser.commands.values():
        yield child
        yield from every_parser(child)


PARSERS = list(every_parser(build_parser()))


def test_the_bare_command_prints_a_page_of_all_commands(verbena: Run) -> None:
    """Status 0; each command with its summary in a group, examples, and where the documentation is."""
    page = verbena().stdout
    assert page == verbena("help").stdout == verbena("--help").stdout
    for group, commands in GROUPS.items():
        assert f"\n{group}:\n" in page
        assert all(f"  {name}" in page and summary in page for name, summary in commands.items())
    assert page.count("\n  verbena ") == 3
    assert "docs/guide/start.md" in page
    assert "Exit status" in page


def test_the_version_is_that_of_the_package(verbena: Run) -> None:
    """As an option and as a command, also in JSON."""
    version = metadata.version("verbena")
    assert verbena("--version").stdout == verbena("version").stdout == f"verbena {version}\n"
    assert json.loads(verbena("version", "--json").stdout)["verbena"] == version


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_help_fits_on_a_screen(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 lines of 100 columns: the options that are used most, and examples."""
    monkeypatch.setenv("COLUMNS", str(SCREEN[1]))
    lines = parser.format_help().splitlines()
    assert len(lines) <= SCREEN[0], f"{len(lines)} lines"
    assert max(map(len, lines)) <= SCREEN[1], max(lines, key=len)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_help_all_has_every_option(parser: Parser) -> None:
    page = parser.format_full_help()
    for action in parser._actions:
        for name in action.option_strings if action.help != "==SUPPRESS==" else ():
            assert name in page, name


def test_help_all_of_a_service_has_every_key(verbena: Run) -> None:
    """--help has a few; `verbena help COMMAND --all` is --help-all."""
    page = verbena("serve", "--help-all").stdout
    assert all(key.flag in page for key in KEYS.values() if key.flag)
    assert verbena("help", "serve", "--all").stdout == page
    assert "--kv-busy-poll-us" not in verbena("serve", "--help").stdout


def test_help_names_an_action(verbena: Run) -> None:
    assert verbena("help", "shards", "move").stdout.startswith(
        "usage: verbena shards move [options] SLOTS NODE"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("serv", "verbena: error: there is no command 'serv'; did you mean 'serve'? (see `verbena help`)"),
        (
            "serve --prot 1",
            "verbena serve: error: there is no option --prot; did you mean --port?"
            " (see `verbena serve --help`)",
        ),
        (
            "serve --kv-maxmemroy=1",
            "verbena serve: error: there is no option --kv-maxmemroy; did you mean --kv-maxmemory?"
            " (see `verbena serve --help`)",
        ),
        (
            "file-node --writeable",
            "verbena file-node: error: there is no option --writeable; did you mean --writable?"
            " (see `verbena file-node --help`)",
        ),
        (
            "shards mvoe",
            "verbena shards: error: there is no action 'mvoe'; did you mean 'move'?"
            " (see `verbena shards --help`)",
        ),
        (
            "bench latncy",
            "verbena bench: error: 'latncy' is not one of latency, rate, bandwidth;"
            " did you mean 'latency'? (see `verbena bench --help`)",
        ),
        ("help sevre", "verbena help: error: there is no command 'sevre'; did you mean 'serve'?"),
        ("xyzzy", "verbena: error: there is no command 'xyzzy' (see `verbena help`)"),
        ("--nonsense", "verbena: error: there is no option --nonsense (see `verbena help`)"),
        ("devices all", "verbena devices: error: unexpected argument 'all' (see `verbena devices --help`)"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion_in_one_line(verbena: Run, words: str, line: str) -> None:
    """On standard error, with status 2."""
    done = verbena(*words.split(), status=2)
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_help_and_version_load_no_native_code_and_are_fast(words: tuple[str, ...]) -> None:
    """The best of several runs takes less than 150 ms of processor time."""
    program = (
        f"import sys; from verbena.cli import main\ntry: main({list(words)!r})\nexcept SystemExit: pass\n"
        "assert 'verbena._native' not in sys.modules"
    )
    spent = []
    for _ in range(5):
        before = sum(os.times()[2:4])
        subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True, timeout=30)
        spent.append(sum(os.times()[2:4]) - before)
    assert min(spent) < 0.15, spent


def test_there_is_a_summary_for_each_command() -> None:
    assert len(COMMANDS) == len(set(COMMANDS)) == sum(map(len, GROUPS.values()))
