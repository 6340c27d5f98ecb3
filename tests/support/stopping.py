"""`verbena` with a place to stop: STOP_AT=PHASE waits at that checkpoint of a move, once, until it may go on.
It makes the file `stopped` in STOP_FOLDER when it is there, and goes on when `go` is."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from verbena.cli import main
from verbena.shards.checkpoint import Checkpoints

PHASE, FOLDER = os.environ.get("STOP_AT", ""), Path(os.environ.get("STOP_FOLDER", "."))
_write = Checkpoints.write


def write(self: Checkpoints, state: Any, *, sync: bool = True) -> None:
    _write(self, state, sync=sync)
    if state.phase.name == PHASE and not (FOLDER / "stopped").exists():
        (FOLDER / "stopped").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.002)


Checkpoints.write = write  # type: ignore[method-assign]
sys.exit(main())
