"""Prints the files that the tests import, one path per line, and leaves their compiled form beside them.

    .venv/bin/python tests/kernel/host/preload.py [PYTEST ARGUMENT…]

boot.py puts these files into the guest's memory: reading them one by one from the host costs it a minute.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What an interpreter has loaded, one path per line: sources, compiled forms, libraries, itself.
LOADED = """
import sys
files = {sys.executable}
for module in list(sys.modules.values()):
    for name in ("__file__", "__cached__"):
        files.add(getattr(module, name, None) or "")
with open("/proc/self/maps") as maps:
    files.update(line.split(maxsplit=5)[-1].rstrip("\\n") for line in maps if "/" in line)
print("\\n".join(files))
"""
PYVERBS = (
    "/usr/bin/python3",
    "import json, socket, pyverbs.cq, pyverbs.device, pyverbs.mr, pyverbs.qp, pyverbs.wr",
)


def imported() -> set[str]:
    """What this interpreter has loaded, and the distribution's for pyverbs, if it has that."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(LOADED, {})
    interpreter, program = PYVERBS
    foreign = subprocess.run(
        [interpreter, "-c", program + LOADED], capture_output=True, text=True, check=False
    ).stdout
    return {file for file in (printed.getvalue() + foreign).splitlines() if os.path.isfile(file)}


def main() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
    files = imported()
    # A test's module is compiled by pytest, under a name of its own.
    caches = {str(Path(file).parent / "__pycache__") for file in files if "/tests/" in file}
    files.update(entry.path for cache in caches if os.path.isdir(cache) for entry in os.scandir(cache))
    print("\n".join(sorted(os.path.abspath(file) for file in files)))


if __name__ == "__main__":
    main()
