"""Runs a command on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def run_on_terminal(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> bytes:
    """Everything that the command writes; it must end with status 0."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command, stdout=slave, stderr=slave, env={**os.environ, **(environment or {})}
    ) as process:
        os.close(slave)
        output = rest_of(master)
        assert process.wait(30) == 0, output
    os.close(master)
    return output


def rest_of(master: int) -> bytes:
    """Reads a terminal until its last writer has left, which Linux reports as an error."""
    output = b""
    try:
        while chunk := os.read(master, 65536):
            output += chunk
    except OSError:
        pass
    return output
