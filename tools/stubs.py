"""Writes src/verbena/_native/*.pyi from the installed extension module; --check fails if they differ."""

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

STUBS = Path(__file__).parent.parent / "src" / "verbena" / "_native"


def generate() -> dict[str, str]:
    """Returns the stubs of the installed verbena._native and its submodules, formatted by ruff."""
    with tempfile.TemporaryDirectory() as folder:
        stubgen = [
            sys.executable,
            "-m",
            "nanobind.stubgen",
            "-q",
            "-r",
            "-m",
            "verbena._native",
            "-O",
            folder,
        ]
        subprocess.run(stubgen, check=True)
        raw = {path.name: path.read_text() for path in sorted(Path(folder).rglob("*.pyi"))}
    return {name: tidy(name, text) for name, text in raw.items()}


def tidy(name: str, text: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(STUBS / name), "-"]
    return subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()

    fresh = generate()
    if not options.check:
        STUBS.mkdir(exist_ok=True)
        for name, text in fresh.items():
            (STUBS / name).write_text(text)
        return 0
    kept = {path.name: path.read_text() for path in sorted(STUBS.glob("*.pyi"))}
    for name in sorted(kept.keys() | fresh.keys()):
        before, after = kept.get(name, ""), fresh.get(name, "")
        sys.stdout.writelines(
            difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                f"{name} in the tree",
                "built",
            )
        )
    if kept != fresh:
        print("src/verbena/_native does not match the build; run: make stubs")
    return int(kept != fresh)


if __name__ == "__main__":
    sys.exit(main())
