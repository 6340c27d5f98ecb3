"""The command as a whole: help, usage errors, the documentation of every option."""

import subprocess
import sys

import pytest

from verbena.cli.app import build_parser
from verbena.cli.help.catalog import COMMANDS
from verbena.cli.help.parser import Parser


def _parsers() -> dict[str, Parser]:
    """Every parser by its command line without `verbena`: also those of actions."""

    def below(parser: Parser, path: str) -> dict[str, Parser]:
        found = {}
        for name, child in parser.commands.items():
            found[f"{path}{name}"] = child
            found |= below(child, f"{path}{name} ")
        return found

    return below(build_parser(), "")


PARSERS = _parsers()


def test_every_command_is_a_module_of_its_name():
    """Each command of the list has a parser, and a summary on the page."""
    assert list(COMMANDS) == list(build_parser().commands)


def test_parsers_load_no_native_code():
    """Help and completion of all commands need neither native code nor the code of services."""
    program = "import sys; from verbena.cli.app import build_parser; build_parser(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "verbena.cli.serve" in loaded.stdout.split()
    assert not {"verbena.transport", "verbena.verbs", "verbena._native"} & set(loaded.stdout.split())


def test_a_command_does_not_import_other_commands():
    """`verbena cli` loads only its own modules."""
    program = (
        "import sys; from verbena.cli.app import build_parser; build_parser(['cli']); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "verbena.cli.cli" in loaded.stdout.split()
    assert not {"verbena.cli.serve", "verbena.transport", "verbena._native"} & set(loaded.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_with_an_example(name):
    """--help-all explains each option and argument, and shows how the command is used."""
    parser = PARSERS[name]
    assert all(action.help for action in parser._actions), [a.dest for a in parser._actions if not a.help]
    assert "examples:" in parser.format_help()
    assert f"verbena {name}" in parser.format_help()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_runs(verbena, name):
    """`verbena COMMAND --help` exits 0, and `verbena help COMMAND` prints the same page."""
    page = verbena(name, "--help").stdout
    assert page.startswith(f"usage: verbena {name} [options]")
    assert verbena("help", name).stdout == page


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("bench",),
        ("bench", "latency", "--size", "0"),
        ("bench", "latency", "--size", "big"),
        ("bench", "latency", "--seconds", "-1"),
        ("bench", "latency", "--iterations", "5", "--seconds", "1"),
        ("bench", "latency", "--pin", "1"),
        ("bench", "latency", "--pin", "0,9999"),
        ("bench", "bandwidth", "--op", "atomic"),
        ("bench", "rate", "--batch", "4"),
        ("bench", "latency", "--size", "8,64", "--plot", "x.png"),
        ("demo", "--seconds", "soon"),
        ("explain",),
        ("cert", "revoke"),
    ],
)
def test_wrong_usage_exits_2_and_prints_the_reason(verbena, arguments):
    """A usage error is one line on standard error, with the command that prints the help."""
    done = verbena(*arguments, status=2)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("verbena")
    assert "error: " in done.stderr
    assert "help" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("command", [("bench", "latency"), ("demo",)])
def test_an_unknown_provider_is_an_error_without_traceback(verbena, command):
    """The error names the provider and a remedy; there is no traceback."""
    done = verbena(*command, "--provider", "carrier-pigeon", status=1)
    assert "carrier-pigeon" in done.stderr
    assert done.stderr.startswith("verbena: ")
