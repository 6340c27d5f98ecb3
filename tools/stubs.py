"""Writes src/verbena/_native.pyi from the installed extension module; --check fails if the file differs."""

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

STUB = Path(__file__).parent.parent / "src" / "verbena" / "_native.pyi"


def generate() -> str:
    """The stub of the installed verbena._native, formatted as the rest of the tree."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / STUB.name
        stubgen = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "verbena._native", "-o", str(raw)]
        subprocess.run(stubgen, check=True)
        text = raw.read_text()
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()

    fresh = generate()
    if not options.check:
        STUB.write_text(fresh)
        return 0
    kept = STUB.read_text() if STUB.exists() else ""
    diff = difflib.unified_diff(
        kept.splitlines(keepends=True), fresh.splitlines(keepends=True), "checked in", "built"
    )
    sys.stdout.writelines(diff)
    if kept != fresh:
        print("src/verbena/_native.pyi does not match the build; run: make stubs")
    return int(kept != fresh)


if __name__ == "__main__":
    sys.exit(main())
