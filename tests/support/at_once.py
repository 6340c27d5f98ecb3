"""Starts many processes that run the same program at the same moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

_READY = """
import sys
def ready():
    print(flush=True)
    sys.stdin.readline()
"""


def run(program: str, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Starts a process of `program` for each of `arguments`. Each process blocks in ready() until all have
    reached it. Returns what each process wrote to standard error."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _READY + program, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for given in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate()[1] for process in processes]
