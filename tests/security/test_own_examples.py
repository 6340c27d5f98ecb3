"""The project's own examples keep secrets out of environments and arguments, which others can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "README.md",
    "Dockerfile*",
    "docs/guide/**/*.md",
    "docs/*.md",
    "deploy/**/*",
    "examples/*",
    "tools/*.sh",
)
FILES = sorted({path for place in PLACES for path in ROOT.glob(place) if path.is_file()})
SECRET_IN_PLAIN_SIGHT = re.compile(
    r"""(?x)
      VERBENA_\w*(SECRET|PASSWORD)\s*[=:]      # not _FILE, whose value is a path
    | --[\w-]*(secret|password)[ =]            # not -file
    | redis-cli\s([^|\n]*\s)?(-a|--pass)\s
    | curl\s([^|\n]*\s)?(-u|--user)[\s=]\S+:\S
    """
)


def test_the_pattern_finds_a_secret() -> None:
    for line in (
        "docker run -e VERBENA_KV_PASSWORD=letmein verbena",
        "  VERBENA_SESSION_SECRET: ${SECRET}",
        "verbena serve --session-secret letmein",
        "redis-cli -p 7000 -a letmein ping",
        "curl -u alice:letmein http://localhost:5000/v2/",
    ):
        assert SECRET_IN_PLAIN_SIGHT.search(line), line
    for line in (
        "VERBENA_SESSION_SECRET_FILE=secret",
        "--session-secret-file secret",
        "redis-cli -p 7000 ping",
    ):
        assert not SECRET_IN_PLAIN_SIGHT.search(line), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_gives_secrets_by_file(path: Path) -> None:
    """Or as a credential of systemd, or as a secret of compose."""
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return  # a picture
    assert [line for line in lines if SECRET_IN_PLAIN_SIGHT.search(line)] == []
