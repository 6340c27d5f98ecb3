"""`verbena registry` as a program: start, stop, check and gc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.registry.process import registry_process

VERBENA = [sys.executable, "-m", "verbena"]


def verbena(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VERBENA, *arguments], capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_registry_cleanly(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "data"
    with registry_process(folder) as server:
        server.push_blob("a", b"hello")
        assert server.end(number) == 0
    assert list((folder / "incoming").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == [
        *("blobs", "incoming", "lock", "quarantine", "registry.db")
    ]


def test_a_second_server_of_a_folder_is_rejected(tmp_path: Path) -> None:
    with registry_process(tmp_path / "data"):
        second = verbena("registry", "--port", "0", "--folder", str(tmp_path / "data"))
    assert second.returncode == 1
    assert "another process serves the registry's folder" in second.stderr


def test_check_and_gc_beside_a_server(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    where = ("--folder", str(folder))
    with registry_process(folder) as server:
        digest = server.push_blob("a", b"hello")
        server.push_blob("a", b"world")
        whole = verbena("registry", "check", *where)
        assert (whole.returncode, whole.stdout) == (0, "checked 2 blobs (10 B) and 0 manifests: 0 problems\n")
        path = folder / "blobs" / "sha256" / digest.encoded[:2] / digest.encoded
        path.write_bytes(b"jello")
        kept = verbena("registry", "check", "--keep", *where)
        assert kept.returncode == 1
        assert server.request("GET", f"/v2/a/blobs/{digest}")[0] == 200
        spoilt = verbena("registry", "check", *where)
        assert spoilt.returncode == 1
        assert "quarantine" in spoilt.stdout
        assert server.request("GET", f"/v2/a/blobs/{digest}")[0] == 404
        removed = verbena("registry", "gc", *where, "--registry-retention-grace-s", "0")
        assert "1 links, 1 blobs, 5 bytes" in removed.stdout
        assert server.end() == 0


@pytest.mark.parametrize("action", ["check", "gc"])
def test_check_and_gc_need_a_registry_folder(tmp_path: Path, action: str) -> None:
    answer = verbena("registry", action, "--folder", str(tmp_path))
    assert answer.returncode == 1
    assert "no registry in" in answer.stderr


def test_sighup_reopens_the_access_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with registry_process(tmp_path / "data", "--registry-access-log", str(log)) as server:
        server.request("GET", "/v2/")
        os.rename(log, tmp_path / "old")
        server.process.send_signal(signal.SIGHUP)
        while not log.exists():
            server.request("GET", "/v2/")
        server.end()
    assert "GET /v2/" in (tmp_path / "old").read_text()


def test_every_short_flag_exists() -> None:
    shown = verbena("registry", "--help-all").stdout
    for flag in (
        "--rdma-enabled",
        "--rdma-listen-addr",
        "--rdma-listen-port",
        "--peers",
        "--port",
        "--folder",
    ):
        assert flag in shown
