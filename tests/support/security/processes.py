"""Starts a victim, and hostile processes beside it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[2]
TIMEOUT_S = 40


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as other users, and make namespaces")


def _start(module: str, *arguments: str, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    source = Path(sys.modules["verbena"].__file__ or "").parents[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")},
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(source)]),
    }
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args} ended with {process.wait(TIMEOUT_S)}"
    return json.loads(line)


@dataclass
class Victim:
    """`report` is its latest one."""

    process: subprocess.Popen[str]
    report: dict[str, Any]
    options: dict[str, Any]

    def ask(self, command: str = "") -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.report |= _answer(self.process)
        return self.report

    def attacked(self, attack: str, *, prefix: Sequence[str] = (), **options: Any) -> Any:
        """Runs a function of support.security.attacker in a process; returns what it did."""
        with self.attacker(attack, prefix=prefix, **options) as process:
            return _answer(process)

    @contextlib.contextmanager
    def attacker(
        self, attack: str, *, prefix: Sequence[str] = (), **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        known = {"address": self.report["address"], "pid": self.report["pid"], "gid": self.report["gid"]}
        words = json.dumps({**known, **options})
        process = _start("support.security.attacker", attack, words, prefix=prefix)
        with process:
            try:
                yield process
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(TIMEOUT_S) == 0
            finally:
                process.kill()


@contextlib.contextmanager
def victim(*, prefix: Sequence[str] = (), **options: Any) -> Iterator[Victim]:
    """A node with these options of support.security.victim."""
    with _start("support.security.victim", json.dumps(options), prefix=prefix) as process:
        try:
            yield Victim(process, _answer(process), options)
            if process.poll() is None:
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], words: Any) -> Any:
    """Sends an attacker a line of JSON, and returns its next answer."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    return _answer(process)


def first_answer(process: subprocess.Popen[str]) -> Any:
    return _answer(process)
