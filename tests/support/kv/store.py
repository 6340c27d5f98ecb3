"""The addresses of a running store."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass


@dataclass
class Store:
    process: subprocess.Popen[str]
    plain: str  # the RESP port
    sessions: str  # the session port

    @property
    def port(self) -> int:
        return int(self.plain.rpartition(":")[2])
