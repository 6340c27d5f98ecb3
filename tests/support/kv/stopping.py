"""`verbena` with a breakpoint: stops once, at the checkpoint of a move that the file `stop_at` in STOP_FOLDER
names. It creates the file `stopped` there and continues when the file `go` exists. The file `trace` has a
line with the time for each checkpoint that was written or removed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from verbena.cli import main
from verbena.kv.migration.checkpoint import Checkpoints

FOLDER = Path(os.environ["STOP_FOLDER"])
_write, _remove = Checkpoints.write, Checkpoints.remove


def trace(what: str) -> None:
    with open(FOLDER / "trace", "ab", buffering=0) as file:
        file.write(f"{time.monotonic()} {what}\n".encode())


def write(self: Checkpoints, state: Any, *, sync: bool = True) -> None:
    _write(self, state, sync=sync)
    trace(state.phase.name)
    wanted = FOLDER / "stop_at"
    if (FOLDER / "stopped").exists() or not wanted.exists() or state.phase.name != wanted.read_text():
        return
    (FOLDER / "stopped").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.002)


def remove(self: Checkpoints, migration: str) -> None:
    _remove(self, migration)
    trace("over")


Checkpoints.write, Checkpoints.remove = write, remove  # type: ignore[method-assign]
sys.exit(main())
