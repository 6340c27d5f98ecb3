"""A replica's watch over its primary's lease, while the map changes under it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from verbena.kv.cluster.roles import Roles
from verbena.shards.cluster_map import ClusterMap, Member

A, B = "a" * 40, "b" * 40


def member(id: str) -> Member:
    return Member(id, "127.0.0.1", 7000, "127.0.0.1:7001")


async def test_a_replica_that_leads_by_now_replaces_nobody() -> None:
    """Its own swap took place and the answer was lost: it hears of it while it asks who holds a lease."""
    followed = ClusterMap().meet(member(A)).meet(member(B)).assign(range(16384), A).replicate(B, A)
    done: list[str] = []

    class Store:
        async def said(self) -> dict[str, str]:
            node.map = followed.promote(B)
            node.server.replication.link = None
            return {B: ""}

    def do(name: str) -> Any:
        return lambda *arguments: done.append(name)

    replication = SimpleNamespace(link=object(), stand=do("stand"), follow=do("follow"))
    node = SimpleNamespace(
        id=B,
        map=followed,
        store=Store(),
        server=SimpleNamespace(replication=replication),
        settings=SimpleNamespace(node_timeout_s=1.0),
    )
    assert await Roles(node).successor_of(A) is None  # type: ignore[arg-type]
    assert done == []
