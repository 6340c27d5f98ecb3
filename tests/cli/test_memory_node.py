"""`verbena memory-node` as a process: serving, stopped by signals, killed, restarted."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import verbena as package
from verbena import _native, errors, far
from verbena.transport import Session, SessionState, Settings

COMMAND = [sys.executable, "-m", "verbena", "memory-node"]
SECRET = "correct horse battery staple"
HASTY = Settings(secret=SECRET.encode(), retry_delay_ms=50, connection_timeout_ms=1000)
pytestmark = pytest.mark.usefixtures("nothing_left_behind", "interruptible")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so do its children, unless it is handled there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Running:
    """The running command, after it has printed its address."""

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0", resume_timeout_s: int = 2) -> None:
        flags = ["--listen", listen, "--session-resume-timeout-s", str(resume_timeout_s), *arguments]
        environment = {**os.environ, "VERBENA_SESSION_SECRET": SECRET}
        self.process = subprocess.Popen(
            [*COMMAND, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.head = self.process.stdout.readline()
        found = re.match(r"memory node at (\S+):", self.head)
        assert found, self.head + self.end()[1]
        self.address = found[1]

    def end(self, number: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
        """Sends a signal; returns the exit status and the remaining output."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out + err


@contextlib.contextmanager
def running(*arguments: str, listen: str = "127.0.0.1:0", resume_timeout_s: int = 2) -> Iterator[Running]:
    node = Running(*arguments, listen=listen, resume_timeout_s=resume_timeout_s)
    try:
        yield node
    finally:
        node.end()


def connect(node: Running, wire: str | None = None) -> Session:
    return package.sync.connect(node.address, wire=wire, config=HASTY)


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_it_serves_arrays_to_another_process(wire: str) -> None:
    """It prints what it serves; one session reads what another wrote."""
    with running("--size", "16MiB") as node:
        assert "16 MiB on shm, " in node.head
        near = np.random.default_rng(5).random((1000, 64))
        with connect(node, wire) as session:
            assert session.wire == wire
            assert far.stat(session)["size"] == 16 << 20
            with far.zeros(session, near.shape, near.dtype, name="numbers") as array:
                array[:] = near
        with connect(node) as session, far.attach(session, "numbers") as array:
            np.testing.assert_array_equal(array[::3], near[::3])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_cleanly(number: signal.Signals) -> None:
    """Its clients are told at once, nothing is left behind, and the status is 128 + n."""
    with running("--size", "4MiB") as node, connect(node) as session:
        array = far.zeros(session, 100, "i4")
        array[3] = 1
        status, said = node.end(number)
        assert status == 128 + number, said
        assert f"ended by {number.name}" in said
        assert "1 sessions, 1 allocations" in said
        assert "Traceback" not in said
        with pytest.raises((errors.ClosedError, errors.BrokenLinkError)) as caught:
            array.flush()
        assert caught.value.peer == node.address


@pytest.fixture
def as_on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is not told when a process of its host ends."""

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(_native.transport, "open_pidfd", refuse)


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
@pytest.mark.parametrize(("place", "code"), [("same host", "peer_died"), ("another host", "resume_timeout")])
def test_a_killed_node_is_a_broken_link_not_a_hang(
    wire: str, place: str, code: str, request: pytest.FixtureRequest
) -> None:
    """Reads, flushes and calls raise an error that contains the attempts and their duration."""
    if place == "another host":
        request.getfixturevalue("as_on_another_host")
    with running("--size", "4MiB") as node, connect(node, wire) as session:
        array = far.zeros(session, (1000, 100), "i4", cache_bytes=64 << 10, block_bytes=4096)
        array[:] = 1
        array[5] = 2
        node.end(signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(errors.BrokenLinkError) as caught:
            array[:]
        assert time.monotonic() - start < (30 if code == "resume_timeout" else 1)
        assert caught.value.code == code
        assert caught.value.peer == node.address
        assert session.state is SessionState.FAILED
        uncached = far.Array(session, array.remote, "i4", 10, cache_bytes=0)
        for attempt in (array.flush, lambda: uncached[0], lambda: far.stat(session)):
            with pytest.raises(errors.BrokenLinkError) as caught:
                attempt()
            assert caught.value.code == code


@pytest.mark.usefixtures("as_on_another_host")
def test_a_restarted_node_is_detected() -> None:
    """Its memory is lost: the client gets peer_restarted, and can allocate again."""
    with running("--size", "4MiB", resume_timeout_s=20) as node, connect(node) as session:
        array = far.zeros(session, 1000, "i4", cache_bytes=0)
        array[:] = 1
        node.end(signal.SIGKILL)
        with running("--size", "4MiB", listen=node.address) as successor:
            with pytest.raises(errors.BrokenLinkError) as caught:
                array[5]
            assert caught.value.code == "peer_restarted"
            with connect(successor) as again:
                with pytest.raises(errors.DeniedError, match="earlier run"):
                    far.Array(again, array.remote, "i4", 1000)[0]
                assert not far.zeros(again, 1000, "i4")[:].any()


def test_the_memory_of_a_killed_client_is_freed() -> None:
    """It is freed when the process has ended, as its session cannot resume."""
    program = (
        "import sys, os, verbena; from verbena import far\n"
        f"session = verbena.sync.connect(sys.argv[1], secret={SECRET!r})\n"
        "far.zeros(session, 1 << 20, 'u1'); far.zeros(session, 4096, 'u1', name='kept')\n"
        "os.kill(os.getpid(), 9)"
    )
    with running("--size", "4MiB", resume_timeout_s=60) as node:
        done = subprocess.run([sys.executable, "-c", program, node.address], timeout=30, check=False)
        assert done.returncode == -signal.SIGKILL
        with connect(node) as session:
            deadline = time.monotonic() + 20
            while far.stat(session)["free"] != (4 << 20) - 4096:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert far.stat(session)["allocations"] == 1
            assert far.stat(session)["names"] == {"kept": 4096}


def test_the_configuration_sets_address_and_secret(verbena, tmp_path: Path) -> None:
    """Without a secret the node rejects an outside address."""
    file = tmp_path / "verbena.toml"
    file.write_text(f'[session]\nlisten_port = 0\nsecret = "{SECRET}"\n')
    with running("--size", "1MiB", "--config", str(file), listen="") as node, connect(node) as session:
        assert node.address.startswith("127.0.0.1:")
        assert far.stat(session)["size"] == 1 << 20
    file.write_text("[session]\nlisten_port = 0\n")
    done = verbena("memory-node", "--size", "1MiB", "--listen", "0.0.0.0:0", "--config", str(file), status=1)
    assert "other machines" in done.stderr


@pytest.mark.parametrize("size", ["0", "1K", "big", "-1", "1000PiB"])
def test_a_size_has_the_syntax_of_the_configuration(verbena, size: str) -> None:
    """Other text is wrong usage, with the reason."""
    assert "must be a size from" in verbena("memory-node", f"--size={size}", status=2).stderr


def test_a_size_beyond_the_machines_memory_is_refused(verbena) -> None:
    """With both sizes, instead of failing later at an allocation."""
    done = verbena("memory-node", "--size", "900TiB", "--listen", "127.0.0.1:0", status=1)
    assert "--size is 900 TiB, but this machine has" in done.stderr
    assert "Traceback" not in done.stderr
