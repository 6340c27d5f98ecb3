"""Programs in files as processes of their own, with a time limit, and the peers that they use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SUPPORT = Path(__file__).parent


def run(
    arguments: Sequence[str | Path],
    *,
    timeout_s: float = 60.0,
    status: int = 0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs Python with these arguments and returns what it printed. AssertionError, with its errors, if it
    ends with another status or not in time."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_own_environment(environment),
    )
    try:
        printed, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, errors = process.communicate()
        raise AssertionError(f"no end after {timeout_s:g} s: {printed}{errors}") from None
    assert process.returncode == status, f"status {process.returncode}: {printed}{errors}"
    return printed


@contextlib.contextmanager
def serving(program: str, *, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """A program of tests/support that prints its address and ends when its input does; the address."""
    process = subprocess.Popen(
        [sys.executable, str(SUPPORT / program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_own_environment(environment),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _own_environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the environment without the configuration of Verbena that the tests were started with."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
    return {**kept, **(more or {})}
