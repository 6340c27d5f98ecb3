"""A kernel without any RDMA device, which is what most machines are: everything says so, and what to do."""

import subprocess
from pathlib import Path

import pytest

from verbena import errors, verbs

DEVICES = Path("/sys/class/infiniband")
VERBENA = Path(".venv/bin/verbena")
WORDS = ("No RDMA devices found", "modprobe rdma_rxe", "rdma link add rxe0 type rxe netdev")


@pytest.fixture(autouse=True)
def without_devices():
    if DEVICES.is_dir() and any(DEVICES.iterdir()):
        pytest.skip("this guest has devices: tests/kernel/guest/without-devices takes them away")


def test_the_provider_says_why():
    """It is there but not available, with the reason."""
    (ibv,) = (info for info in verbs.providers() if info.name == "ibv")
    assert not ibv.available
    for words in WORDS:
        assert words in ibv.reason


def test_opening_says_what_to_do():
    """UnavailableError, with the reason and the remedy."""
    with pytest.raises(errors.UnavailableError) as failure:
        verbs.open_device("ibv")
    assert failure.value.code == "no_device"
    for words in (*WORDS, "cause: ", "remedy: list the usable devices with `verbena devices`"):
        assert words in str(failure.value)


@pytest.mark.parametrize("command", [["devices"], ["doctor", "--provider", "ibv"]], ids=["devices", "doctor"])
def test_the_command_line_says_so(command):
    """`verbena devices` and `verbena doctor` show the same reason."""
    printed = subprocess.run([VERBENA, *command], capture_output=True, text=True, timeout=120, check=False)
    assert "No RDMA devices found" in printed.stdout + printed.stderr
    assert "rdma link add" in printed.stdout + printed.stderr
