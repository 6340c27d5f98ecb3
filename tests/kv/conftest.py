"""Fixtures: a store in its own process, one per test module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kv.store import Store

SERVING = Path(__file__).with_name("serving.py")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with subprocess.Popen(
        [sys.executable, str(SERVING)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        plain, sessions = process.stdout.readline().split()
        yield Store(process, f"127.0.0.1:{plain}", f"127.0.0.1:{sessions}")
        process.stdin.close()
        assert process.wait(10) == 0
