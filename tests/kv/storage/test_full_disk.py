"""A store on a full file system: it refuses writes, survives SIGKILL, and starts again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "full_disk.py"
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        pytest.skip("mounting a file system needs unshare and a user namespace")
    return tmp_path


def test_a_store_that_was_killed_on_a_full_disk_starts_again(full_disk: Path) -> None:
    """With a torn log and not one free block: the torn end is cut off and reported, every acknowledged write
    is there, further writes are refused until there is room, then accepted."""
    mount = f"mount -t tmpfs -o size=1m none {full_disk} && exec {sys.executable} {PROGRAM} {full_disk}"
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", mount],
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "the log ended in the middle of a write, which has been cut off" in done.stderr
