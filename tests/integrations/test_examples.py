"""The examples for other people's programs run as they stand."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dask_cluster_sums_arrays_of_two_workers() -> None:
    printed = run("dask_cluster.py")
    assert "scheduler at verbena://127.0.0.1:" in printed
    assert "workers communicate over shm" in printed
    assert "sum of both parts 3000000.0" in printed


def test_files_come_from_a_file_node(tmp_path: Path) -> None:
    """The command exports a folder; the example writes there, reads back, and sees the wire."""
    command = [sys.executable, "-m", "verbena", "file-node", str(tmp_path), "--writable"]
    node = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert node.stdout is not None
        said = node.stdout.readline()
        address = said.split()[3].rstrip("/:")
        printed = run("files.py", address)
    finally:
        node.send_signal(signal.SIGTERM)
        _, complaints = node.communicate(timeout=30)
    assert f"{tmp_path}, read-write, on shm" in said
    assert "sum 499999500000" in printed
    assert "last bytes [999998 999999]" in printed
    assert "files ['numbers.npy'] over shm" in printed
    assert node.returncode == 128 + signal.SIGTERM, complaints
    assert [child.name for child in tmp_path.iterdir()] == ["numbers.npy"]
