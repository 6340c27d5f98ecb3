"""Nodes on the wires between machines: QUIC in one process, and as two programs in network namespaces that
the configuration tells to fall back to it. The RDMA device's wire is tried in the kernel testbed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.certificates import Authority
from support.rdma.namespaces import Network, NoNamespaces, machines
from support.registry.nodes import pull, push, settled

from verbena import config, verbs
from verbena.registry import digests
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.service import Registry
from verbena.transport.configured import client_tls, server_tls, settings_from

CONTENT = os.urandom(1 << 20) * 9
FIRST, SECOND = "10.79.0.1", "10.79.0.2"


@pytest.fixture(autouse=True)
def usable() -> None:
    info = next(info for info in verbs.providers() if info.name == "quic")
    if not info.available:
        pytest.skip(info.reason)


def configuration(authority: Authority, name: str, *names: str) -> str:
    pair = authority.issue(name, names=",".join(f"IP:{address}" for address in names))
    return (
        '[network]\nrdma_fallback = "quic"\n[session]\nsecret = "a secret of the tests"\n'
        f'[tls]\ncertificate = "{pair.certificate}"\nkey = "{pair.key}"\nca = "{authority.ca}"\n'
    )


async def test_blobs_are_transferred_over_quic(tmp_path: Path) -> None:
    """Pieces go both ways while a client follows."""
    found = config.loads(configuration(Authority(tmp_path), "node", "127.0.0.1"))
    settings = dataclasses.replace(settings_from(found), wires=("quic",), recv_buffer_pool_size=1000)
    async with contextlib.AsyncExitStack() as stack:
        nodes: list[Nodes] = []
        for number in range(3):
            registry = Registry(tmp_path / f"node{number}")
            stack.push_async_callback(asyncio.to_thread, registry.close)
            opened = await Nodes.open(
                registry,
                NodesSettings(peers=tuple(node.address for node in nodes)),
                transport_settings=settings,
                server_tls=server_tls(found),
                client_tls=client_tls(found),
            )
            stack.push_async_callback(opened.close)
            await asyncio.gather(*(peer.tried.wait() for peer in opened.peers))
            nodes.append(opened)
        one, two, three = nodes
        digest = await push(one, CONTENT)
        assert await pull(two, digest) == CONTENT
        await settled(two)
        assert await pull(three, digest) == CONTENT
        back = await push(three, CONTENT[:-1])
        assert await pull(one, back) == CONTENT[:-1]
        wires = {peer.session.wire for node in nodes for peer in node.peers if peer.session}
        assert wires == {"quic"}
        assert one.source.sent_bytes + two.source.sent_bytes >= 2 * len(CONTENT)


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    try:
        with machines(2, prefix="10.79.0") as made:
            yield made
    except NoNamespaces as error:
        pytest.skip(str(error))


def test_two_programs_fall_back_to_quic(network: Network, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    running = []

    def curl(number: int, *words: str) -> bytes:
        return subprocess.run(
            network.inside(number, "curl", "-sSf", *words),
            capture_output=True,
            check=True,
        ).stdout

    try:
        for number, address in enumerate((FIRST, SECOND)):
            file = tmp_path / f"{number}.toml"
            file.write_text(configuration(authority, f"node{number}", address, "127.0.0.1"))
            file.chmod(0o600)
            words = ["--config", str(file), "--folder", str(tmp_path / f"data{number}"), "--rdma-enabled"]
            words += ["--rdma-listen-addr", address, "--rdma-listen-port", "9999"]
            words += ["--peers", f"{FIRST}:9999"] if number else []
            process = subprocess.Popen(
                network.inside(number, sys.executable, "-m", "verbena", "registry", *words),
                env={key: value for key, value in os.environ.items() if not key.startswith("VERBENA_")},
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            assert process.stdout is not None
            banner = [process.stdout.readline() for _ in range(4)]
            assert f"{address}:9999 on" in banner[2], banner
            assert "quic" in banner[2], banner
        blob = tmp_path / "blob"
        blob.write_bytes(CONTENT)
        digest = digests.of(CONTENT)
        where = "http://127.0.0.1:5000"
        query = f"{where}/v2/app/blobs/uploads/?digest={digest}"
        curl(
            0,
            "-X",
            "POST",
            "--data-binary",
            f"@{blob}",
            "-H",
            "Content-Type: application/octet-stream",
            query,
        )
        assert curl(1, f"{where}/v2/app/blobs/{digest}") == CONTENT
        [peer] = json.loads(curl(1, f"{where}/ui/node.json"))["peers"]
        assert (peer["wire"], peer["received_bytes"]) == ("quic", len(CONTENT))
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate()
