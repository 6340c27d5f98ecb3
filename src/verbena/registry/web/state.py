"""This node's state for the web page, as plain values computed for each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from verbena.registry.digests import Digest
from verbena.registry.nodes.fetch import Fetch
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.peer import Peer
from verbena.registry.service import Registry

HERE = "this node"


def node(registry: Registry, nodes: Nodes | None, *, may_pull: Callable[[str], bool]) -> dict[str, Any]:
    """Returns the state; leaves out transfers of repositories that `may_pull` does not allow."""
    document: dict[str, Any] = {"stored": registry.metadata.totals(), "time": time.time()}
    if nodes is None:
        return document
    fetches = [fetch for fetch in nodes.fetches.values() if any(map(may_pull, fetch.repositories))]
    document["node"] = {
        "name": nodes.node.name,
        "address": nodes.address,
        "wires": list(nodes.listener.wires) if nodes.listener is not None else [],
        "sent_bytes": nodes.source.sent_bytes,
        "fetched": nodes.fetched,
        "failed": nodes.failed,
        "replicating": nodes.replication.waiting,
    }
    known = {peer.id for peer in nodes.peers if peer.id}
    inbound = [peer for peer in nodes.inbound.values() if peer.id not in known]
    document["peers"] = [_peer(peer) for peer in (*nodes.peers, *inbound) if not peer.is_self]
    document["upstreams"] = [
        {"url": upstream.url, "failures": upstream.failures} for upstream in nodes.upstreams.all
    ]
    document["transfers"] = [_transfer(fetch, may_pull) for fetch in fetches]
    return document


async def locations(
    registry: Registry, nodes: Nodes | None, repository: str, digest: Digest
) -> list[dict[str, Any]]:
    """Returns which nodes have a blob and how much of it: this node, the bucket, and every peer that
    responds."""
    found: list[dict[str, Any]] = []
    if (row := registry.metadata.blob(repository, digest)) is not None:
        if not row[2] or registry.blobs.path_of(digest).exists():
            found.append({"node": HERE, "whole": True, "held": row[0]})
        if row[2] and registry.recall is not None:
            found.append({"node": str(registry.recall.bucket), "whole": True, "held": row[0]})
    if nodes is None:
        return found
    fetch = nodes.fetches.get(digest)
    if fetch is not None and repository in fetch.repositories:
        found.append({"node": HERE, "whole": False, "held": fetch.received})
    peers = nodes.usable_peers()
    answers = await asyncio.gather(*(nodes.finder.holds(peer, repository, digest) for peer in peers))
    for peer, answer in zip(peers, answers, strict=True):
        if answer is not None:
            found.append({"node": peer.name, "whole": answer[0], "held": answer[1]})
    return found


def _peer(peer: Peer) -> dict[str, Any]:
    session = peer.session
    return {
        "name": peer.name,
        "address": peer.address,
        "state": session.state.value if session is not None else "unreachable",
        "wire": (session.wire if session is not None else None) or "",
        "why": session.reason if session is not None else peer.problem,
        "received_bytes": peer.received_bytes,
        "corrupt_blobs": peer.corrupt_blobs,
        "stalls": peer.stalls,
        "avoided": peer.avoided,
    }


def _transfer(fetch: Fetch, may_pull: Callable[[str], bool]) -> dict[str, Any]:
    return {
        "digest": str(fetch.digest),
        "repositories": sorted(filter(may_pull, fetch.repositories)),
        "size": fetch.size,
        "received": fetch.received,
        "begun": fetch.transfer.begun,
        "sources": [
            {"name": name, "received": count, "wire": fetch.transfer.wires.get(name, "")}
            for name, count in sorted(fetch.transfer.received.items())
        ],
        "state": "repairing" if fetch.repairing else "verifying" if fetch.plan.done else "receiving",
    }
