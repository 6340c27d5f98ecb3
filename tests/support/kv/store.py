"""A running store, as tests see it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass


@dataclass
class Store:
    process: subprocess.Popen[str]
    plain: str  # where RESP is spoken
    sessions: str  # where sessions are taken

    @property
    def port(self) -> int:
        return int(self.plain.rpartition(":")[2])
