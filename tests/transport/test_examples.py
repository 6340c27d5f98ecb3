"""Runs the examples of the guide as the guide describes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_guides_server_and_client_work() -> None:
    """Two processes: the client connects over shared memory, and 64 MiB come back unchanged."""
    server = subprocess.Popen(
        [sys.executable, EXAMPLES / "session_server.py", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        client = subprocess.run(
            [sys.executable, EXAMPLES / "session_client.py", address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert "connected over shm (the best both have)" in client.stdout
    assert "b'HELLO'" in client.stdout
    assert "64 MiB written and read: equal" in client.stdout
    assert "counter: True" in client.stdout
