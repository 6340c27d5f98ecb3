"""docs/guide/sessions.md, "On two machines", followed literally in two network namespaces with a cable."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "sessions.md"
FIRST = "10.77.0.1"


@dataclass(frozen=True)
class Machines:
    """Two namespaces, and the folder that both commands run in."""

    first: str
    second: str
    folder: Path

    def inside(self, namespace: str, command: str) -> list[str]:
        return ["ip", "netns", "exec", namespace, "sh", "-c", command]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    names = [f"verbena-{os.getpid()}-{end}" for end in "ab"]
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        cable = ("link", "add", "cable", "netns", names[0], "type", "veth")
        ip(*cable, "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, (FIRST, "10.77.0.2"), strict=True):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        yield Machines(*names, tmp_path)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def commands() -> list[str]:
    """The lines of the guide's block, without their comments."""
    text = GUIDE.read_text().partition("## On two machines")[2]
    block = re.search(r"```sh\n(.*?)```", text, re.S)
    assert block is not None
    return [line for line in (re.sub(r"\s+#.*", "", line) for line in block[1].splitlines()) if line]


def test_the_guide_connects_two_machines(machines: Machines) -> None:
    """A secret, a server on every address, a client that calls it by its host: over TCP, since these have
    neither memory nor an RDMA device in common."""
    secret, export, serve, call = commands()
    assert "VERBENA_SESSION_SECRET_FILE" in export
    serve = serve.removesuffix("&").rstrip()  # in the background, where one shell does it all
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    where = {"cwd": machines.folder, "env": environment, "text": True}
    subprocess.run(["sh", "-c", secret], check=True, **where)  # type: ignore[call-overload]
    server = subprocess.Popen(
        machines.inside(machines.first, f"{export}; exec {serve}"),
        stdout=subprocess.PIPE,
        **where,  # type: ignore[call-overload]
    )
    try:
        assert server.stdout.readline() == f"listening at {serve.split()[-1]}\n"
        call = call.replace("first-machine", FIRST)
        client = subprocess.run(
            machines.inside(machines.second, f"{export}; exec {call}"),
            capture_output=True,
            timeout=60,
            check=False,
            **where,  # type: ignore[call-overload]
        )
        assert client.returncode == 0, client.stderr
        without = subprocess.run(
            machines.inside(machines.second, f"exec {call}"),
            capture_output=True,
            timeout=60,
            check=False,
            **where,  # type: ignore[call-overload]
        )
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert "connected by iwarp (shm: the peer does not offer it)" in client.stdout
    assert "b'HELLO'" in client.stdout
    assert "64 MiB there and back: the same" in client.stdout
    assert without.returncode != 0
    assert "DeniedError" in without.stderr
