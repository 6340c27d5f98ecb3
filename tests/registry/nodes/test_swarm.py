"""Many nodes that fetch the same blob exchange its pieces."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from support.registry.nodes import Cluster, pull, push

from verbena.registry.nodes.settings import PIECE

COUNT = 16
BLOB = random.Random(5).randbytes(10 * PIECE)


@pytest.mark.alone
async def test_sixteen_nodes_fetch_one_blob_and_the_origin_sends_it_at_most_twice(tmp_path: Path) -> None:
    """Fifteen nodes fetch at once, and get most of the blob from each other."""
    async with Cluster(tmp_path, source_bytes=2 * PIECE, window_bytes=4 * PIECE) as cluster:
        nodes = [await cluster.add(wires=("shm",)) for _ in range(COUNT)]
        origin = nodes[0]
        digest = await push(origin, BLOB)
        got = await asyncio.gather(*(pull(node, digest) for node in nodes[1:]))
        assert all(content == BLOB for content in got)
        sent = [node.source.sent_bytes for node in nodes]
        assert sent[0] <= 2 * len(BLOB)
        assert sum(sent) >= (COUNT - 1) * len(BLOB)
        assert sum(1 for given in sent[1:] if given) >= COUNT // 4
