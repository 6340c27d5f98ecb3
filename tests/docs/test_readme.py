"""The README's programs run as pasted, and the paths that the pages of the root name exist."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import pytest
from support import page_commands as pages

README = pages.blocks(pages.ROOT / "README.md")
PROGRAMS = [
    (program, output)
    for program, output in itertools.pairwise(README)
    if (program.language, output.language) == ("python", "text")
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=lambda block: f"line {block.line}")
def test_a_program_prints_what_the_page_shows(program: pages.Block, output: pages.Block) -> None:
    """It is piped into Python and ends by itself."""
    done = subprocess.run(
        [sys.executable, "-"], input=program.text, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, output.text, "")


def test_every_python_block_is_a_program_with_its_output() -> None:
    """The README has two programs, each followed by what it prints."""
    assert sum(block.language == "python" for block in README) == len(PROGRAMS) == 2


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_paths_of_a_page_exist(page: str) -> None:
    """A path in backquotes that begins with a folder of the root names a file or folder of the tree."""
    text = (pages.ROOT / page).read_text()
    named = re.findall(r"`((?:src|tests|docs|tools|bench|examples|deploy)/[\w./-]+)`", text)
    missing = [path for path in named if not (pages.ROOT / path).exists()]
    assert not missing
