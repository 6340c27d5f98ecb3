"""What a program inherits through a fork: `refused` uses that must raise `forked` in a child, `allowed` uses
that must work there, and a check that the parent's answers are its own."""

from __future__ import annotations

import os
from collections.abc import Callable

Use = Callable[[], object]
TIMEOUT_S = 20.0


class Subject:
    def __init__(self) -> None:
        self.refused: dict[str, Use] = {}
        self.allowed: dict[str, Use] = {}
        self.process = os.getpid()

    def check(self, number: int) -> None:
        """Uses the object in the parent."""

    def close(self) -> None:
        raise NotImplementedError
