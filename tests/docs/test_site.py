"""The site is built without a warning, loads nothing from elsewhere, and generated pages are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make site` does: strict, so that a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        # Without --quiet, which drops warnings before strict mode counts them.
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        html = page.relative_to(ROOT / "docs").with_suffix(".html")
        if html.name == "README.html":  # mkdocs makes it the folder's index
            html = html.with_name("index.html")
        assert (site / html).is_file()
        assert f'href="{html}"' in front or html.name == "index.html"


def test_no_page_loads_from_other_hosts(site: Path) -> None:
    """Scripts, styles, pictures and fonts are files of the site."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert loaded == [], page


def test_generated_pages_match_the_code() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_wire_formats_have_the_sizes_that_the_compiler_asserts() -> None:
    page = (ROOT / "docs/reference/wire-formats.md").read_text()
    sizes = dict(re.findall(r"^### (\w+) \((\d+) bytes\)", page, flags=re.MULTILINE))
    asserted = {
        name: size
        for header in (ROOT / "src/native").rglob("*_layout.h")
        for name, size in re.findall(r"sizeof\((\w+)\) == (\d+)", header.read_text())
    }
    both = sizes.keys() & asserted.keys()
    assert len(both) > 15
    assert {name: sizes[name] for name in both} == {name: asserted[name] for name in both}
