"""Kills a process a given time after the trace in a folder (see stopping.py) shows a phase. It is a separate
process so that nothing else delays it. Prints the time of the kill.

    python strike.py FOLDER PHASE SECONDS PID
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main(folder: str, phase: str, seconds: str, pid: str) -> int:
    trace, wanted = Path(folder) / "trace", f" {phase}\n".encode()
    ends = time.monotonic() + 60
    while not trace.exists() or wanted not in trace.read_bytes():
        if time.monotonic() > ends:
            return 1
        time.sleep(0.0001)
    time.sleep(float(seconds))
    print(time.monotonic(), flush=True)
    os.kill(int(pid), signal.SIGKILL)
    return 0


sys.exit(main(*sys.argv[1:]))
