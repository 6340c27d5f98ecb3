"""Missing blobs are fetched from peers: complete, verified, once, and from all that have them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from support.ports import free_port
from support.registry.filling import Filler
from support.registry.nodes import Cluster, follow, pull, push, settled

from verbena.registry import digests
from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob
from verbena.registry.nodes.settings import PIECE

BLOB = random.Random(1).randbytes(3 * PIECE + 12345)


@pytest.mark.parametrize("wires", [("shm",), ("iwarp",)])
@pytest.mark.parametrize("length", [0, 1, 65536, PIECE, len(BLOB)])
async def test_a_missing_blob_is_fetched_from_a_peer(
    tmp_path: Path, length: int, wires: tuple[str, ...]
) -> None:
    """Blobs of any size, on either wire; afterwards they are stored."""
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add(wires=wires) for _ in range(2)]
        digest = await push(origin, BLOB[:length])
        assert await pull(requester, digest) == BLOB[:length]
        await settled(requester)
        assert requester.registry.metadata.blob("app", digest) is not None
        assert origin.source.sent_bytes == length
        assert requester.peers[0].session is not None
        assert requester.peers[0].session.wire == wires[0]
        assert await pull(requester, digest) == BLOB[:length]
        assert requester.fetched == 1


async def test_a_sha512_blob_is_fetched(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add() for _ in range(2)]
        digest = await push(origin, BLOB, algorithm="sha512")
        assert await pull(requester, digest) == BLOB


async def test_a_blob_that_no_node_has_is_unknown(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add() for _ in range(2)]
        await push(origin, b"another")
        with pytest.raises(Refused):
            await requester.registry.blob("app", digests.of(b"nobody's"))


async def test_a_blob_of_another_repository_is_not_served(tmp_path: Path) -> None:
    """Access to one repository gives no access to another through a node that lacks the blob."""
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add() for _ in range(2)]
        digest = await push(origin, BLOB, repository="private")
        with pytest.raises(Refused):
            await requester.registry.blob("public", digest)
        fetching = await requester.registry.blob("private", digest)
        assert isinstance(fetching, IncomingBlob)
        with pytest.raises(Refused):
            await requester.registry.blob("public", digest)
        assert await follow(fetching) == BLOB


async def test_many_clients_share_one_fetch(tmp_path: Path) -> None:
    """The blob is fetched once, and all clients get it as it arrives."""
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add() for _ in range(2)]
        digest = await push(origin, BLOB)
        got = await asyncio.gather(*(pull(requester, digest) for _ in range(20)))
        assert all(content == BLOB for content in got)
        assert requester.fetched == 1
        assert origin.source.sent_bytes == len(BLOB)


async def test_a_blob_is_fetched_from_several_peers(tmp_path: Path) -> None:
    """A blob that three nodes have arrives from more than one of them."""
    content = random.Random(2).randbytes(16 * PIECE)
    async with Cluster(tmp_path) as cluster:
        holders = [await cluster.add() for _ in range(3)]
        for node in holders:
            digest = await push(node, content)
        requester = await cluster.add()
        assert await pull(requester, digest) == content
        given = [node.source.sent_bytes for node in holders]
        assert sum(1 for sent in given if sent) >= 2
        assert sum(given) <= len(content) + 3 * PIECE  # a slow one's piece may be asked of another, too


async def test_a_session_serves_both_directions(tmp_path: Path) -> None:
    """Only one of two nodes needs the other in its list of peers."""
    async with Cluster(tmp_path) as cluster:
        requester, origin = [await cluster.add() for _ in range(2)]
        assert requester.peers == []
        digest = await push(origin, BLOB)
        assert await pull(requester, digest) == BLOB


async def test_a_node_ignores_itself_among_its_peers(tmp_path: Path) -> None:
    """All nodes can share one list: a node that dials itself detects it."""
    own = f"127.0.0.1:{free_port()}"
    async with Cluster(tmp_path) as cluster:
        other = await cluster.add()
        node = await cluster.add(listen=own, peers=(own, other.address))
        assert [peer.is_self for peer in node.peers] == [True, False]
        assert [peer.id for peer in node.usable_peers()] == [other.id]
        assert await pull(node, await push(other, BLOB)) == BLOB


async def test_manifests_are_fetched_from_peers(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        origin, requester = [await cluster.add() for _ in range(2)]
        digest = await Filler(origin.registry).image("app", "latest", BLOB)
        by_tag = await requester.registry.manifest("app", "latest")
        assert by_tag.digest == digest
        assert await requester.registry.manifest("app", str(digest)) == by_tag
        assert requester.registry.tags("app") == ["latest"]
