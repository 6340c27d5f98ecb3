"""Registry nodes in one process, each with its own folder, over any available wire."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from support.registry.filling import Filler
from verbena import transport
from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.service import Blob, Registry


class Cluster:
    """Nodes that are created one after the other. Each knows those before it, and they know it from its
    connection."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.nodes: list[Nodes] = []
        self._settings = settings
        self._stack = AsyncExitStack()

    async def add(self, *, wires: tuple[str, ...] = ("shm", "iwarp"), **settings: Any) -> Nodes:
        registry = Registry(self.folder / f"node{len(self.nodes)}")
        self._stack.push_async_callback(asyncio.to_thread, registry.close)
        peers = tuple(node.address for node in self.nodes)
        chosen = {"peers": peers, **self._settings, **settings}
        nodes = await Nodes.open(
            registry,
            NodesSettings(**chosen),
            transport_settings=transport.Settings(wires=wires, recv_buffer_pool_size=1000),
        )
        self._stack.push_async_callback(nodes.close)
        await asyncio.gather(*(peer.tried.wait() for peer in nodes.peers))
        self.nodes.append(nodes)
        return nodes

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


async def push(nodes: Nodes, content: bytes, repository: str = "app", algorithm: str = "sha256") -> Digest:
    return await Filler(nodes.registry).blob(repository, content, algorithm=algorithm)


async def pull(nodes: Nodes, digest: Digest, repository: str = "app") -> bytes:
    """What a client receives: the file, or the blob read while it arrives."""
    blob = await nodes.registry.blob(repository, digest)
    if isinstance(blob, Blob):
        return blob.path.read_bytes()
    return await follow(blob)


async def follow(blob: IncomingBlob) -> bytes:
    got = bytearray()
    while len(got) < (blob.size or 0):
        now = await blob.arrived(len(got))
        got += blob.read(len(got), now - len(got))
    return bytes(got)


async def settled(nodes: Nodes) -> None:
    """Returns when no transfer to this node is in progress."""
    while nodes.fetches:
        fetch = next(iter(nodes.fetches.values()))
        await asyncio.wait([fetch.whole])
        await asyncio.sleep(0)
