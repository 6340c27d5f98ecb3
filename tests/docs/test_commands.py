"""Every command of README and docs is run, or says why not, and is then checked as far as it can be."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest
from support import page_commands as commands

from verbena.cli.app import build_parser

ROOT = commands.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {path: commands.blocks(path) for path in PAGES}
RUN = [path for path in PAGES if commands.has_commands(BLOCKS[path])]
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
# Pages of programs: each program is short, is run, and prints the text block that follows its command.
PROGRAMS = sorted((ROOT / "docs/guide/programs").glob("*.md"))
MAX_LINES = 25
EXTRAS = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", RUN, ids=name)
@pytest.mark.timeout(150)
def test_the_commands_of_a_page_work(path: Path, tmp_path: Path) -> None:
    """In order, in one shell, in an empty folder with the examples; each ends with status 0."""
    reason = commands.why_not()
    if reason:
        pytest.skip(reason)
    done = commands.run(BLOCKS[path], tmp_path, timeout_s=140)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.count(f"{name(path)}:") >= 1
    if path in PROGRAMS:
        for command, expected in shown_outputs(BLOCKS[path]):
            assert printed_by(command, done.stdout) == expected.text


def shown_outputs(found: list[commands.Block]) -> list[tuple[commands.Block, commands.Block]]:
    """Returns the blocks of one command that a text block follows, with that block."""
    return [
        (command, expected)
        for command, expected in itertools.pairwise(found)
        if (command.language, expected.language, len(command.commands)) == ("sh", "text", 1)
    ]


def printed_by(block: commands.Block, stdout: str) -> str:
    """Returns what the command of a block printed: the lines until the next command."""
    _, _, rest = stdout.partition(f"{block.page}:{block.line}: {block.commands[0]}\n")
    return re.split(rf"^{re.escape(block.page)}:\d+: ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_the_programs_of_a_page_are_short_and_their_output_is_shown(path: Path) -> None:
    """Each Python block is a file that the page runs, and the page shows what it prints."""
    checked = shown_outputs(BLOCKS[path])
    programs = [block for block in BLOCKS[path] if block.language == "python" and not block.not_run]
    assert {f"python {program.file}" for program in programs} <= {run.commands[0] for run, _ in checked}
    assert all(len(program.text.splitlines()) <= MAX_LINES for program in programs)
    assert len(checked) == sum(block.language == "text" for block in BLOCKS[path])


def test_commands_that_are_not_run_have_a_reason() -> None:
    """The reasons are short, and few commands need one."""
    reasons = [
        block.not_run
        for found in BLOCKS.values()
        for block in found
        if block.language == "sh" and block.not_run
    ]
    assert all(len(reason.split()) >= 2 for reason in reasons)
    every = sum(block.language == "sh" for found in BLOCKS.values() for block in found)
    assert len(reasons) < every / 3


def test_shell_blocks_are_marked_sh() -> None:
    """A block marked `bash` or `console` would not be run."""
    used = {block.language for found in BLOCKS.values() for block in found}
    assert not used & {"bash", "console", "shell", "zsh"}


def test_commands_of_verbena_that_are_not_run_can_be_parsed() -> None:
    """Their subcommands and options exist."""
    for found in BLOCKS.values():
        for block in found:
            if block.language == "sh" and block.not_run:
                for command in block.commands:
                    words = shlex.split(re.split(r"[|>]", command)[0])
                    if words and words[0] == "verbena":
                        build_parser().parse_args(words[1:])


def test_targets_of_make_and_extras_of_pip_exist() -> None:
    for found in BLOCKS.values():
        for block in found:
            for command in block.commands if block.language == "sh" else ():
                if command.startswith("make "):
                    assert command.split()[1] in TARGETS, command
                for extra in re.findall(r"(?:(?:verbena|\.)\[|EXTRAS=)(\w+)", command):
                    assert extra in EXTRAS, command
