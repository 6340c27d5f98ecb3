"""Tests that need a kernel with RDMA devices of our own: they run in the testbed's guest, and skip elsewhere.
Gives `serve`, `siw`, `cable`, `with_memlock`, `pyverbs`, `met`; every test here is chosen by `-k ibv`.
Depends on the guest's devices (guest/devices) and programs only."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.rdma.link import End, wait_until
from support.rdma.pyverbs_peer import PyverbsPeer, meet

GUEST = Path(__file__).parent / "guest"


def pytest_itemcollected(item: pytest.Item) -> None:
    item.extra_keyword_matches.add("ibv")


@pytest.fixture(autouse=True)
def in_the_testbed() -> None:
    if "VERBENA_KERNEL_TESTBED" not in os.environ:
        pytest.skip("runs in the kernel testbed only: make test-kernel")


def listening(port: int) -> bool:
    """Whether somebody waits for callers there, by TCP or by the connection manager."""
    tcp = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True)
    managed = subprocess.run(
        ["rdma", "resource", "show", "cm_id"], capture_output=True, text=True, check=True
    )
    return bool(tcp.stdout.strip() or re.search(rf"LISTEN.*:{port}\b", managed.stdout))


@pytest.fixture
def serve() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program that is not ours and waits until it listens on its port; it ends with the test.
    Its output is the process's `stdout`."""
    with contextlib.ExitStack() as stack:

        def start(port: int, *command: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            wait_until(lambda: process.poll() is not None or listening(port), f"{command[0]} to listen")
            if process.poll() is not None:
                pytest.fail(
                    f"{' '.join(command)} ended with {process.returncode}: {process.communicate()[0]}"
                )
            return process

        yield start


@pytest.fixture(scope="module")
def siw() -> Iterator[None]:
    """Soft-iWARP's device siw0, on 10.8.0.1 and fd08::1, for those who ask: others open the first device."""
    made = subprocess.run([GUEST / "siw-device"], capture_output=True, text=True, check=False)
    if made.returncode == 77:
        pytest.skip(made.stdout.strip())
    assert made.returncode == 0, made.stderr
    yield
    subprocess.run(["rdma", "link", "delete", "siw0"], check=True)
    subprocess.run(["ip", "link", "delete", "iwarp"], check=True)


@pytest.fixture(params=["crc", "no crc"])
def checksum(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """siw itself does not ask for a CRC: what we ask for is what is used."""
    monkeypatch.setenv("VERBENA_IWARP_CRC", "1" if request.param == "crc" else "0")
    return "crc32c" if request.param == "crc" else "none"


class Cable:
    """The cable between rxe1 and rxe2."""

    def down(self, device: str) -> None:
        """Takes the device's end down; the other loses its carrier."""
        self._link(device, "down")

    def up(self, device: str) -> None:
        """Back as it was; the port is active when this returns."""
        self._link(device, "up")

    def drop(self, device: str, percent: float) -> None:
        """Loses so much of what the device sends; neither end is told."""
        self._link(device, "drop", str(percent))

    def state(self, device: str) -> str:
        """The port's state: "ACTIVE" or "DOWN"."""
        return Path(f"/sys/class/infiniband/{device}/ports/1/state").read_text().split()[1]

    def mend(self) -> None:
        for device in ("rxe1", "rxe2"):
            netdev = device.replace("rxe", "cable")
            subprocess.run(["ip", "link", "set", netdev, "up"], check=True)
        for device in ("rxe1", "rxe2"):
            self.drop(device, 0)
            self.up(device)

    @staticmethod
    def _link(*arguments: str) -> None:
        subprocess.run([GUEST / "link", *arguments], check=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """The virtual cable, for tests that disturb it. It is restored after the test."""
    cable = Cable()
    yield cable
    cable.mend()


@pytest.fixture
def with_memlock() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command (Python's arguments, or any with `program`) that may lock only so many KiB of memory."""

    def run(
        limit_kib: int, *arguments: str, program: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        command = [str(GUEST / "with-memlock"), str(limit_kib), program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture(scope="session")
def pyverbs_once() -> Iterator[Callable[[], PyverbsPeer]]:
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(PyverbsPeer()))


@pytest.fixture
def pyverbs(in_the_testbed: None, pyverbs_once: Callable[[], PyverbsPeer]) -> PyverbsPeer:
    """rdma-core's own Python peer on rxe2; one process serves all tests."""
    return pyverbs_once()


@pytest.fixture
def met(pyverbs: PyverbsPeer) -> Iterator[Callable[..., End]]:
    """Connects an end on rxe1 to the pyverbs peer, with attributes for `ours` and `theirs`."""
    with contextlib.ExitStack() as stack:

        def connect(**attributes: dict[str, int]) -> End:
            end = meet(pyverbs, **attributes)
            stack.callback(end.context.close)
            return end

        yield connect
