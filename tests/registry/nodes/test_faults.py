"""Nodes that send wrong bytes, stall, die or have a full disk: a blob is correct or is not served."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registry.nodes import Cluster, follow, pull, push, settled
from support.registry.processes import Processes

from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob, IncomingFailed
from verbena.registry.nodes.fetch import Fetch
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import PIECE

BLOB = random.Random(3).randbytes(12 * PIECE)


def spoil(node: Nodes, offset: int) -> None:
    """Changes a byte of its one blob, so that it sends wrong bytes."""
    [(digest, _)] = node.registry.blobs.files()
    with open(node.registry.blobs.path_of(digest), "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def fetch(node: Nodes, digest: object) -> None:
    """Fetches until the blob is stored; clients that follow wrong bytes are disconnected and retry."""
    found = await node.fetch("app", digest)  # type: ignore[arg-type]
    assert found is not None
    await found.whole


async def test_a_node_that_sends_wrong_bytes_is_identified_and_avoided(tmp_path: Path) -> None:
    """All its pieces are wrong, the blob is still correct, and other nodes are not counted."""
    async with Cluster(tmp_path) as cluster:
        honest, liar = [await cluster.add() for _ in range(2)]
        for node in (honest, liar):
            digest = await push(node, BLOB)
        for index in range(12):
            spoil(liar, index * PIECE + 77)
        requester = await cluster.add()
        await fetch(requester, digest)
        assert await pull(requester, digest) == BLOB
        corrupt_blobs = {peer.id: peer.corrupt_blobs for peer in requester.peers}
        was_asked = liar.source.sent_bytes > 0
        assert corrupt_blobs == {honest.id: 0, liar.id: int(was_asked)}
        assert (liar.id in [peer.id for peer in requester.usable_peers()]) is not was_asked


async def test_wrong_bytes_of_the_only_holder_are_never_stored(tmp_path: Path) -> None:
    """Followers get an error instead of the last byte, and no file remains."""
    async with Cluster(tmp_path) as cluster:
        liar, requester = [await cluster.add() for _ in range(2)]
        digest = await push(liar, BLOB)
        spoil(liar, 5 * PIECE)
        blob = await requester.registry.blob("app", digest)
        assert isinstance(blob, IncomingBlob)
        with pytest.raises(IncomingFailed):
            await follow(blob)
        await settled(requester)
        assert requester.failed == 1
        assert list(requester.registry.blobs.files()) == []
        assert list(requester.registry.blobs.incoming_files()) == []
        assert requester.peers[0].corrupt_blobs == 1
        with pytest.raises(Refused):  # nobody else has it
            await requester.registry.blob("app", digest)


async def test_wrong_bytes_of_a_short_blob_are_detected(tmp_path: Path) -> None:
    """A blob that arrives with the response is verified too; then other holders are queried."""
    async with Cluster(tmp_path) as cluster:
        honest, liar, requester = [await cluster.add() for _ in range(3)]
        digest = await push(liar, BLOB[:1000])
        spoil(liar, 500)
        find_more = requester.finder.find_more

        async def find_more_later(fetch: Fetch) -> None:
            await push(honest, BLOB[:1000])
            await find_more(fetch)

        requester.finder.find_more = find_more_later  # type: ignore[method-assign]
        await fetch(requester, digest)
        assert await pull(requester, digest) == BLOB[:1000]
        assert {peer.id: peer.corrupt_blobs for peer in requester.peers} == {honest.id: 0, liar.id: 1}


def test_the_pieces_of_a_killed_peer_come_from_another(tmp_path: Path) -> None:
    """A peer killed during a transfer does not prevent the blob from completing."""
    size = 96 << 20
    with Processes(tmp_path, piece_timeout_s=20.0) as nodes:
        first, second = nodes.add(), nodes.add()
        for node in (first, second):
            digest = node.ask("push", seed=7, length=size)["digest"]
        requester = nodes.add()
        requester.ask("peers", count=2)
        requester.begin("pull", digest=digest)
        requester.begin("received", digest=digest, least=8 << 20)
        answers = [requester.answer()]
        first.kill()
        answers.append(requester.answer())
        pulled = next(answer for answer in answers if "right" in answer or "failed" in answer)
        assert pulled.get("right") is True, answers


def test_a_stalled_peer_is_replaced(tmp_path: Path) -> None:
    """A stopped process neither responds nor disconnects."""
    with Processes(tmp_path, piece_timeout_s=1.0) as nodes:
        first, second = nodes.add(), nodes.add()
        for node in (first, second):
            digest = node.ask("push", seed=7, length=48 << 20)["digest"]
        requester = nodes.add()
        requester.ask("peers", count=2)
        first.stop()
        assert requester.ask("pull", digest=digest)["right"] is True
        assert second.ask("figures")["sent"] >= 48 << 20


def test_a_killed_requester_leaves_no_partial_blob(tmp_path: Path) -> None:
    """After a restart the partial blob is not a blob; a second fetch completes it."""
    with Processes(tmp_path) as nodes:
        origin = nodes.add()
        digest = origin.ask("push", seed=8, length=96 << 20)["digest"]
        requester = nodes.add()
        requester.ask("peers", count=1)
        requester.begin("pull", digest=digest)
        requester.begin("received", digest=digest, least=8 << 20)
        requester.answer()
        requester.kill()
        again = nodes.add(folder=requester.folder, peers=[origin.address])
        assert again.ask("figures")["blobs"] in (0, 1)  # it may have been that quick
        assert again.ask("pull", digest=digest)["right"] is True


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is too small for the blob."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_the_fetch_and_not_the_node(tmp_path: Path, small_disk: Path) -> None:
    """The client gets an error, the space is freed, and a smaller blob can be fetched."""
    with Processes(tmp_path) as nodes:
        origin = nodes.add()
        large = origin.ask("push", seed=9, length=40 << 20)["digest"]
        small = origin.ask("push", seed=10, length=5 << 20)["digest"]
        requester = nodes.add(folder=small_disk)
        requester.ask("peers", count=1)
        assert "failed" in requester.ask("pull", digest=large)
        requester.ask("settled")
        figures = requester.ask("figures")
        assert (figures["blobs"], figures["incoming"]) == (0, 0)
        assert requester.ask("pull", digest=small).get("right") is True, requester.ask("figures")
        assert os.statvfs(small_disk).f_bavail > 0
