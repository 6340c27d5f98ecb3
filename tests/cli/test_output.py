"""Colour, errors in JSON, and JSON of commands that print data."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.terminal import run_on_terminal

from verbena.cli.output import colour
from verbena.cli.output.colour import Colour, paint

from .conftest import COMMAND

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_for_terminals_unless_a_variable_decides(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, coloured: bool
) -> None:
    """NO_COLOR counts before FORCE_COLOR."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    assert (paint("x", Colour.RED, stream) != "x") is coloured


def test_no_color_as_an_option_works_before_and_after_the_command() -> None:
    """Help pages have bold headings on a terminal."""
    assert b"\x1b[1m" in run_on_terminal([*COMMAND, "help", "serve"])
    assert b"\x1b" not in run_on_terminal([*COMMAND, "--no-color", "help", "serve"])
    assert b"\x1b" not in run_on_terminal([*COMMAND, "help", "serve", "--no-color"])


def test_forbid_switches_colour_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    colour.forbid()
    assert not colour.enabled(Terminal())


@pytest.mark.parametrize(
    "words",
    [
        "bench latency --provider carrier-pigeon --json",
        "demo --provider carrier-pigeon --json",
        "doctor --provider carrier-pigeon --json",
        "config show --json --config /nonexistent.toml",
        "shards status --json --cluster-map-store /nonexistent.db",
        "kv check /nonexistent --json",
        "registry check --folder /nonexistent --json",
        "top 127.0.0.1:1 --json",
    ],
)
def test_an_error_with_json_is_one_document_on_standard_error(verbena: Run, words: str) -> None:
    """It has at least code, what and remedy; standard output stays empty."""
    done = verbena(*words.split(), status=1)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"]
    assert error["what"]
    assert error["remedy"]
    assert not done.stdout


def test_a_usage_error_with_json_is_one_document(verbena: Run) -> None:
    """Its code is `usage`; the remedy is the command that prints the help."""
    error = json.loads(verbena("devices", "--json", "--verbos", status=2).stderr)["error"]
    assert error["code"] == "usage"
    assert error["what"] == "there is no option --verbos; did you mean --verbose?"
    assert error["remedy"] == "verbena devices --help"


@pytest.mark.parametrize(
    "words",
    [
        "version",
        "devices",
        "explain memlock",
        "explain --list",
        "config check",
        "config show kv",
        "config reference kv",
        "demo --provider fake --seconds 0.1",
        "bench latency --seconds 0.1",
        "failover-drill --rest 0",
    ],
)
def test_json_is_one_document_on_standard_output(verbena: Run, words: str) -> None:
    """And nothing else is there."""
    assert json.loads(verbena(*words.split(), "--json").stdout)


def test_json_of_certificates_names_the_files(verbena: Run, tmp_path: Path) -> None:
    made = json.loads(verbena("cert", "init", "--folder", str(tmp_path), "--json").stdout)
    assert Path(made["certificate"]).exists()
    issued = json.loads(verbena("cert", "issue", "n1", "--folder", str(tmp_path), "--json").stdout)
    assert issued["names"] == ["n1"]
    assert Path(issued["key"]).exists()
