"""A store in its own process, and its addresses."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVING = Path(__file__).parents[2] / "kv" / "serving.py"


@dataclass
class Store:
    process: subprocess.Popen[str]
    plain: str  # the RESP port
    sessions: str  # the session port

    @property
    def port(self) -> int:
        return int(self.plain.rpartition(":")[2])


@contextlib.contextmanager
def serving_store() -> Iterator[Store]:
    """A store without configuration. It must end with status 0."""
    with subprocess.Popen(
        [sys.executable, str(SERVING)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        plain, sessions = process.stdout.readline().split()
        yield Store(process, f"127.0.0.1:{plain}", f"127.0.0.1:{sessions}")
        process.stdin.close()
        assert process.wait(10) == 0
