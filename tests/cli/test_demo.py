"""`verbena demo`, and the exit of commands on signals."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from support.terminal import rest_of, run_on_terminal

COMMAND = [sys.executable, "-m", "verbena"]
pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def test_the_demo_prints_rates_and_verifies_data(verbena):
    """In one second it prints a table and two checksum comparisons, and exits with status 0."""
    out = verbena("demo", "--seconds", "1").stdout
    assert all(words in out for words in ("READ 8 B", "WRITE 1 MiB", "bandwidth", "p99"))
    assert out.count("checksum matches") == 2
    assert "\x1b" not in out


def test_the_demo_runs_in_process(verbena):
    """The fake provider runs between threads of one process."""
    assert "the other thread" in verbena("demo", "--seconds", "0.2", "--provider", "fake").stdout


def test_on_a_terminal_the_table_is_redrawn_in_place():
    """Cursor movements are printed on a terminal only."""
    output = run_on_terminal([*COMMAND, "demo", "--seconds", "1"])
    assert b"\x1b[" in output


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so do its children, unless it is handled there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [("demo", "--seconds", "60"), ("bench", "latency", "--seconds", "60")])
def test_a_signal_ends_the_command_cleanly(number, arguments):
    """Exit status 128 + n, no traceback, no process and no shared memory left."""
    master, slave = pty.openpty()  # only a terminal is shown progress
    with subprocess.Popen([*COMMAND, *arguments], stdout=slave, stderr=slave) as process:
        os.close(slave)
        head = os.read(master, 10)  # it has begun
        process.send_signal(number)
        start = time.monotonic()
        rest = rest_of(master).decode()
        assert process.wait(30) == 128 + number, (head, rest)
    os.close(master)
    assert time.monotonic() - start < 20
    assert "Traceback" not in rest
    assert f"ended by {number.name}" in rest
