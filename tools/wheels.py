"""Builds the source distribution and, from it, a wheel for each CPython here, and tries each wheel.

Interpreters are python3.10 … python3.14 on the path, pyenv's, and those that --python names. Build
requirements are installed first; the build itself may not use a package index. Each wheel is then installed
into an environment of its own and used: two processes exchange bytes.
"""

from __future__ import annotations

import argparse
import ast
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PYENV = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))

TRIAL = """
import subprocess, sys, verbena, verbena.verbs as verbs
assert verbs.open_device("shm"), "shm cannot be opened"
names = [provider.name for provider in verbs.providers()]
print(f"verbena {verbena.__version__} on {sys.version.split()[0]}: {', '.join(names)}")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="dist", help="where to (default: dist); - with --sdist-only: stdout")
    parser.add_argument("--sdist-only", action="store_true", help="no wheels")
    parser.add_argument("--python", action="append", default=[], help="an interpreter (may be repeated)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="3.X", help="that version alone (likewise)"
    )
    options = parser.parse_args()
    if options.out == "-":
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.buffer.write(_sdist(Path(folder)).read_bytes())
        return 0
    out = Path(options.out).resolve()
    source = _sdist(out)
    print(f"{source.name}: {source.stat().st_size >> 10} KiB")
    if options.sdist_only:
        return 0
    pythons = _interpreters(options.python)
    pythons = {
        version: python for version, python in pythons.items() if version in options.only or not options.only
    }
    missing = [version for version in VERSIONS if version not in pythons]
    print("interpreters:", ", ".join(pythons), *(("; not here:", ", ".join(missing)) if missing else ()))
    tree = _unpacked(source)
    failures = [version for version, python in pythons.items() if not _wheel(version, python, tree, out)]
    print("all wheels built and tried" if not failures else f"failed: {', '.join(failures)}")
    return 1 if failures else 0


def _sdist(out: Path) -> Path:
    """By the backend that pyproject.toml names."""
    out.mkdir(parents=True, exist_ok=True)
    code = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return out / done.stdout.split()[-1]


def _build_requirements() -> list[str]:
    (listed,) = re.findall(
        r"^requires = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    return list(ast.literal_eval(listed))


def _unpacked(source: Path) -> Path:
    """At one place for all builds, so that a compiler cache knows them again."""
    folder = ROOT / "build/wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(source) as archive:
        archive.extractall(folder)
    (tree,) = folder.iterdir()
    return tree


def _interpreters(more: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for version in VERSIONS:
        pyenv = sorted(glob.glob(f"{PYENV}/versions/{version}.*/bin/python"))
        python = shutil.which(f"python{version}") or (pyenv[-1] if pyenv else None)
        for candidate in filter(None, (python, *pyenv[-1:])):
            if _version(candidate) == version:
                found[version] = candidate
                break
    for python in more:
        found[_version(python)] = python
    return dict(sorted(found.items(), key=lambda row: tuple(map(int, row[0].split(".")))))


def _version(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _wheel(version: str, python: str, tree: Path, out: Path) -> bool:
    """Builds without a network from requirements that are installed first, then tries it elsewhere."""
    log = ROOT / f"build/log/wheel-{version}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open(log, "w") as written:

        def run(*command: str | Path) -> None:
            written.write(f"$ {' '.join(map(str, command))}\n")
            written.flush()
            subprocess.run(command, stdout=written, stderr=subprocess.STDOUT, check=True, cwd=folder)

        try:
            build, clean = Path(folder, "build"), Path(folder, "clean")
            run(python, "-m", "venv", build)
            run(build / "bin/pip", "install", *_build_requirements(), "cmake", "ninja")
            offline = ("--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir")
            cmake = tree.parent / "cmake"
            shutil.rmtree(cmake, ignore_errors=True)
            run(
                build / "bin/pip",
                "wheel",
                *offline,
                f"--config-settings=build-dir={cmake}",
                "--wheel-dir",
                Path(folder, "made"),
                tree,
            )
            (wheel,) = Path(folder, "made").glob("*.whl")
            run(python, "-m", "venv", clean)
            run(clean / "bin/pip", "install", wheel)
            run(clean / "bin/python", "-c", TRIAL)
            for example in ("hello.py", "two_processes.py"):
                run(clean / "bin/python", ROOT / "examples" / example)
            run(clean / "bin/verbena", "doctor", "--provider", "shm")
            run(clean / "bin/pip", "check")
        except subprocess.CalledProcessError as error:
            print(f"  {version}  FAILED with status {error.returncode}: {log.relative_to(ROOT)}", flush=True)
            return False
        shutil.copy(wheel, out)
        print(f"  {version}  {wheel.name}  {wheel.stat().st_size >> 10} KiB, tried", flush=True)
        return True


if __name__ == "__main__":
    sys.exit(main())
