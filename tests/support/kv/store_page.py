"""A store in its own process that serves its node's page."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def store_with_page(
    name: str, *flags: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yields what `verbena serve` printed, and the address of the page."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        page = f"127.0.0.1:{free.getsockname()[1]}"
    ports = ("--port", "0", "--session-listen-port", "0", "--metrics-listen", page)
    store = subprocess.Popen(
        [sys.executable, "-m", "verbena", "serve", *ports, "--session-node-name", name, *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert store.stdout is not None
        banner = ""
        while "try:" not in banner:
            line = store.stdout.readline()
            assert line, banner
            banner += line
        yield banner, page
    finally:
        store.terminate()
        store.communicate(timeout=50)
