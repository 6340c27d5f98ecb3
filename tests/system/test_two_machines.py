"""docs/guide/sessions.md, "On two machines", followed literally in two network namespaces with a cable."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rdma.namespaces import Network, NoNamespaces, machines

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "sessions.md"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    try:
        with machines(2, prefix="10.77.0") as made:
            yield made
    except NoNamespaces as error:
        pytest.skip(str(error))


def commands() -> list[str]:
    """The lines of the guide's block, without their comments."""
    text = GUIDE.read_text().partition("## On two machines")[2]
    block = re.search(r"```sh\n(.*?)```", text, re.S)
    assert block is not None
    return [line for line in (re.sub(r"\s+#.*", "", line) for line in block[1].splitlines()) if line]


def test_the_guide_connects_two_machines(network: Network, tmp_path: Path) -> None:
    """A secret, a server on every address, a client that calls it by its host: over TCP, since these have
    neither memory nor an RDMA device in common."""
    secret, export, serve, call = commands()
    assert "VERBENA_SESSION_SECRET_FILE" in export
    serve = serve.removesuffix("&").rstrip()  # in the background, where one shell does it all
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    where = {"cwd": tmp_path, "env": environment, "text": True}
    subprocess.run(["sh", "-c", secret], check=True, **where)  # type: ignore[call-overload]
    server = subprocess.Popen(
        network.inside(0, "sh", "-c", f"{export}; exec {serve}"),
        stdout=subprocess.PIPE,
        **where,  # type: ignore[call-overload]
    )
    try:
        assert server.stdout.readline() == f"listening at {serve.split()[-1]}\n"
        call = call.replace("first-machine", network.address(0))
        client = subprocess.run(
            network.inside(1, "sh", "-c", f"{export}; exec {call}"),
            capture_output=True,
            timeout=60,
            check=False,
            **where,  # type: ignore[call-overload]
        )
        assert client.returncode == 0, client.stderr
        without = subprocess.run(
            network.inside(1, "sh", "-c", f"exec {call}"),
            capture_output=True,
            timeout=60,
            check=False,
            **where,  # type: ignore[call-overload]
        )
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert "connected over iwarp (shm: the peer does not offer it)" in client.stdout
    assert "b'HELLO'" in client.stdout
    assert "64 MiB written and read: equal" in client.stdout
    assert without.returncode != 0
    assert "DeniedError" in without.stderr
