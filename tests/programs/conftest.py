"""The peers of the programs: each starts at first use and serves all tests of a file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import program_files
from support.certificates import Authority
from support.kv.store import serving_store
from support.rdma import iwarp_tls
from support.services import SERVICES, running

import verbena

# The address in what a service prints.
_ADDRESS = {
    "store": r"sessions +(\S+)",
    "memory-node": r"memory node at (\S+):",
    "file-node": r"verbena://(\S+)/:",
}


def _never(request: verbena.Request) -> bytes:
    time.sleep(30)
    return b""


@pytest.fixture(scope="module")
def listener() -> Iterator[verbena.sync.Listener]:
    """A listener with the handlers echo and never."""
    with verbena.sync.listen(
        "127.0.0.1:0", handlers={"echo": lambda request: request.payload, "never": _never}
    ) as listener:
        yield listener


@pytest.fixture
def peer(listener: verbena.sync.Listener) -> str:
    return listener.address


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a store for sessions."""
    with serving_store() as serving:
        yield serving.sessions


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which programs and their peer can use the wire quic."""
    if iwarp_tls.MISSING:
        return {}
    return iwarp_tls.environment(iwarp_tls.issue(Authority(tmp_path_factory.mktemp("authority"))), "quic")


@pytest.fixture(scope="module")
def address_of(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Callable[[str], str]]:
    """The address of a service by its name: a row of SERVICES, or "peer", which echoes."""
    addresses = {"": ""}
    with ExitStack() as stack:

        def start(name: str) -> str:
            if name == "peer":
                return stack.enter_context(program_files.serving("forks/peer.py", environment=environment))
            folder: Path = tmp_path_factory.mktemp(name) / "folder"
            folder.mkdir()
            _, banner = stack.enter_context(running(SERVICES[name], folder))
            found = re.search(_ADDRESS[name], banner)
            assert found is not None, banner
            return found[1]

        def find(name: str) -> str:
            if name not in addresses:
                addresses[name] = start(name)
            return addresses[name]

        yield find
