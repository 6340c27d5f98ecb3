"""A real etcd process for tests: the distribution's, on free ports, in a temporary folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import free_port

ETCD = shutil.which("etcd")
_READY = re.compile(rb"serving (insecure )?client (requests|traffic)")


@contextmanager
def etcd(
    folder: Path, *, command: tuple[str, ...] = (), host: str = "127.0.0.1", tls: tuple[str, ...] = ()
) -> Iterator[str]:
    """Runs etcd and yields its address. `command` is a prefix, such as that of a network namespace. `tls`:
    etcd's options for certificates."""
    assert ETCD is not None
    port, peers = free_port(), free_port()
    client, peer = f"http{'s' if tls else ''}://{host}:{port}", f"http://{host}:{peers}"
    with open(folder / "etcd.log", "wb") as log:
        process = subprocess.Popen(
            [
                *command,
                *(ETCD, "--data-dir", str(folder / "etcd"), "--name", "one"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, *tls),
                *(
                    "--initial-cluster",
                    f"one={peer}",
                    "--heartbeat-interval",
                    "50",
                    "--election-timeout",
                    "500",
                ),
            ],
            stdout=log,
            stderr=log,
        )
    (folder / "etcd.pid").write_text(str(process.pid))
    try:
        deadline = time.monotonic() + 30
        while not _READY.search((folder / "etcd.log").read_bytes()):
            assert process.poll() is None, (folder / "etcd.log").read_text()
            assert time.monotonic() < deadline, (folder / "etcd.log").read_text()
            time.sleep(0.02)
        yield f"{host}:{port}"
    finally:
        process.kill()
        process.wait()


def etcd_process(folder: Path) -> int:
    return int((folder / "etcd.pid").read_text())
