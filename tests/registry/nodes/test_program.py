"""Two `verbena registry` processes: skopeo pushes to one and pulls from the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.registry.process import Process, registry_process

NODE = ("--rdma-enabled", "--rdma-listen-addr", "127.0.0.1", "--rdma-listen-port", "0")


def node_address(process: Process) -> str:
    """Parses the address for other nodes from the output."""
    found = re.search(r"^  nodes\s+(\S+) on ", process.banner, re.MULTILINE)
    assert found is not None, process.banner
    return found[1]


def test_an_image_pushed_to_one_node_is_pulled_from_another(tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    rootfs = tmp_path / "layer"
    rootfs.mkdir()
    (rootfs / "data").write_bytes(os.urandom(6 << 20))
    archive = tmp_path / "layer.tar"
    subprocess.run(["tar", "-C", rootfs, "-cf", archive, "data"], check=True)

    def copy(*words: str) -> None:
        done = subprocess.run(
            ["skopeo", "copy", "--src-tls-verify=false", "--dest-tls-verify=false", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    with registry_process(tmp_path / "one", *NODE) as one:
        peers = ("--peers", node_address(one))
        with registry_process(tmp_path / "two", *NODE, *peers) as two:
            copy(f"tarball:{archive}", f"docker://{one.address}/team/app:1")
            copy(f"docker://{two.address}/team/app:1", f"oci:{tmp_path / 'layout'}:app")
            assert two.request("GET", "/v2/team/app/tags/list")[2] == b'{"name": "team/app", "tags": ["1"]}'
        one.end()
    sizes = [file.stat().st_size for file in (tmp_path / "layout" / "blobs" / "sha256").iterdir()]
    assert max(sizes) > 6 << 20
