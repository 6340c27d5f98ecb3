"""A plugin of pytest for runs in several processes (pytest-xdist). A test with the mark `alone` runs while no
other process of the run executes a test: it measures time, or compares the whole machine before and after.
Each process has its own folder of temporary files, so that a test sees only what it left behind itself."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.rdma import devices

_folder = pytest.StashKey[Path]()  # the run's; absent in a run of one process


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other process of the run executes a test meanwhile")
    if hasattr(config, "workerinput"):
        config.stash[_folder] = Path(config.workerinput["folder"])
        own = config.stash[_folder] / config.workerinput["workerid"]
        own.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(own)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Before a process starts: passes the run's folder to it."""
    if _folder not in node.config.stash:
        node.config.stash[_folder] = Path(tempfile.mkdtemp(prefix="tests-"))
        node.config.stash[_folder].chmod(0o755)  # programs of other users read files in it
    node.workerinput["folder"] = str(node.config.stash[_folder])


def pytest_unconfigure(config: pytest.Config) -> None:
    if _folder in config.stash and not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_folder], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside pytest-timeout: its limit does not include waiting
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _folder not in item.config.stash:
        return (yield)
    with _turn(item.config.stash[_folder], alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Holds the lock `running`, exclusively if `alone`. The lock `next` is held while waiting for it, so that
    a steady flow of other tests cannot overtake an exclusive one."""
    with open(folder / "next", "w") as following, open(folder / "running", "w") as running:
        fcntl.flock(following, fcntl.LOCK_EX)
        fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(following, fcntl.LOCK_UN)
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deviations"] = devices.used()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """After a process has ended: takes over what it reports at the end of the run."""
    devices.add_used(getattr(node, "workeroutput", {}).get("deviations", []))
