"""User programs as subprocesses: what they print, and how soon they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A program ends within about a second of its last line. A machine that runs other tests meanwhile is slower.
ENDS_WITHIN_S = 6.0
TIME_LIMIT_S = 60.0
# Not errors: what debug builds report about native objects that exist at the end of the process.
_LEAK_REPORT = ("nanobind: ", " - ", "See https://nanobind")
LAST_LINE = "last line"


@dataclass(frozen=True)
class Ended:
    """A program that has ended: its output without the last line, and the seconds since that line."""

    output: list[str]
    errors: list[str]
    status: int
    seconds: float


def run_program(
    program: str,
    *arguments: str,
    interrupts: int = 0,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    status: int = 0,
    says: str = "",
) -> Ended:
    """Runs a program that prints LAST_LINE when it has nothing more to do, or blocks. It gets `interrupts`
    SIGINTs then, half a second apart, must end soon with `status`, and with no error unless it `says` one."""
    process = subprocess.Popen(
        [sys.executable, *options, "-c", textwrap.dedent(program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    with process:
        try:
            return _watch(process, interrupts, status, says)
        finally:
            process.kill()


def _watch(process: subprocess.Popen[str], interrupts: int, status: int, says: str) -> Ended:
    assert process.stdout is not None
    output: list[str] = []
    for line in process.stdout:
        if line.rstrip() == LAST_LINE:
            break
        output.append(line.rstrip())
    said = time.monotonic()
    while interrupts:
        process.send_signal(signal.SIGINT)
        interrupts -= 1
        if interrupts:
            time.sleep(0.5)  # a user's second Ctrl-C, which comes at any point of the end
    rest, errors_text = process.communicate(timeout=TIME_LIMIT_S)
    seconds = time.monotonic() - said
    errors = [line for line in errors_text.splitlines() if line and not line.startswith(_LEAK_REPORT)]
    ended = Ended(output + rest.splitlines(), errors, process.returncode, seconds)
    assert ended.status == status, ended
    assert any(says in line for line in errors) if says else not errors, ended
    assert seconds < ENDS_WITHIN_S, ended
    return ended
