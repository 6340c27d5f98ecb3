"""The command as a whole: help, usage errors, the documentation of every option."""

import argparse
import subprocess
import sys
from importlib import metadata

import pytest

from verbena.cli.app import COMMANDS, build_parser


def _parsers() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def test_every_command_is_a_module_of_its_name():
    """Each subcommand in the list is one module."""
    assert list(COMMANDS) == list(_parsers())


def test_a_command_imports_neither_other_commands_nor_native_code():
    """`verbena cli` loads only its own modules."""
    program = (
        "import sys; from verbena.cli.app import build_parser; build_parser(['cli']); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "verbena.cli.cli" in loaded.stdout.split()
    assert not {"verbena.cli.serve", "verbena.transport", "verbena._native"} & set(loaded.stdout.split())


@pytest.mark.parametrize("name", _parsers())
def test_every_option_is_documented_with_an_example(name):
    """--help explains each option and argument, and shows how the command is used."""
    parser = _parsers()[name]
    assert all(action.help for action in parser._actions), [a.dest for a in parser._actions if not a.help]
    assert "examples:" in parser.format_help()
    assert f"verbena {name}" in parser.format_help()


def test_help_lists_the_commands(verbena):
    """`verbena --help` names each command and the exit statuses."""
    out = verbena("--help").stdout
    assert all(name in out for name in _parsers())
    assert "exit status" in out


def test_the_version_is_that_of_the_package(verbena):
    """`verbena --version` names the installed version."""
    assert verbena("--version").stdout == f"verbena {metadata.version('verbena')}\n"


@pytest.mark.parametrize("name", _parsers())
def test_help_of_a_command_runs(verbena, name):
    """`verbena COMMAND --help` exits 0."""
    assert "usage: verbena" in verbena(name, "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
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
    ],
)
def test_wrong_usage_exits_2_and_prints_the_reason(verbena, arguments):
    """A usage error prints usage and reason on standard error."""
    done = verbena(*arguments, status=2)
    assert "usage: verbena" in done.stderr
    assert "error:" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("command", [("bench", "latency"), ("demo",)])
def test_an_unknown_provider_is_an_error_without_traceback(verbena, command):
    """The error names the provider and a remedy; there is no traceback."""
    done = verbena(*command, "--provider", "carrier-pigeon", status=1)
    assert "carrier-pigeon" in done.stderr
    assert done.stderr.startswith("verbena: ")
