"""Pushes are copied to other nodes, before or after the response to the client."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from support.registry.filling import Filler
from support.registry.nodes import Cluster, push
from support.registry.processes import Processes

from verbena.registry.errors import Refused
from verbena.registry.nodes.settings import PIECE

BLOB = random.Random(12).randbytes(PIECE + 5)


async def test_a_synchronous_push_waits_for_the_copies(tmp_path: Path) -> None:
    """When the response arrives, two other nodes have blobs, manifest and tag."""
    async with Cluster(tmp_path) as cluster:
        others = [await cluster.add() for _ in range(2)]
        node = await cluster.add(replicas=2, replicate_synchronously=True)
        digest = await Filler(node.registry).image("app", "v1", BLOB)
        for other in others:
            other.registry.source = None  # what is here is here
            assert (await other.registry.manifest("app", "v1")).digest == digest
            assert len(list(other.registry.blobs.files())) == 2


async def test_a_synchronous_push_fails_with_too_few_nodes(tmp_path: Path) -> None:
    """The content is stored, and the client may repeat the push."""
    async with Cluster(tmp_path) as cluster:
        await cluster.add()
        node = await cluster.add(replicas=2, replicate_synchronously=True)
        with pytest.raises(Refused) as caught:
            await push(node, BLOB)
        assert caught.value.status == 503
        assert len(list(node.registry.blobs.files())) == 1
        assert node.replication.failed == 1


async def test_a_node_that_is_killed_while_it_copies_is_replaced(tmp_path: Path) -> None:
    """After SIGKILL between push and response, the response waits for a copy on another node."""
    with Processes(tmp_path / "others") as processes:
        options = {"peers": [], "resume_timeout_s": 3}
        killed, other = [await asyncio.to_thread(processes.add, **options) for _ in range(2)]
        async with Cluster(tmp_path) as cluster:
            node = await cluster.add(
                peers=(killed.address, other.address), replicas=1, replicate_synchronously=True
            )
            for process in (killed, other):
                process.stop()
            pushing = asyncio.ensure_future(push(node, BLOB))
            while not node.replication.waiting:  # noqa: ASYNC110 - a count, not an event
                await asyncio.sleep(0)
            killed.kill()
            other.go_on()
            await pushing
            assert (await asyncio.to_thread(other.ask, "figures"))["blobs"] == 1
            assert (node.replication.done, node.replication.failed) == (1, 0)


async def test_asynchronous_copies_follow_the_response(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        others = [await cluster.add() for _ in range(3)]
        node = await cluster.add(replicas=1)
        await push(node, BLOB)
        await node.replication.settle()
        assert sum(len(list(other.registry.blobs.files())) for other in others) == 1
        assert (node.replication.done, node.replication.failed) == (1, 0)
