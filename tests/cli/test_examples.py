"""The examples run unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.usefixtures("nothing_left_behind")


@pytest.mark.parametrize("name", ["hello.py", "two_processes.py"])
def test_the_examples_read_and_write_one_sided(name):
    """Data goes both ways."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
    assert "world" in done.stdout


def test_hello_is_under_twenty_lines():
    """The README shows it first."""
    assert len((EXAMPLES / "hello.py").read_text().splitlines()) < 20
