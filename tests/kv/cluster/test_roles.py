"""A replica's watch over its primary's lease, and taking its place."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from verbena.errors import VerbenaError
from verbena.kv.cluster import ClusterNode
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


async def test_a_planned_failover_changes_the_map_when_all_of_the_log_is_here_and_not_before() -> None:
    """The primary has stopped writing at 100: a replica at 60 waits, and gives up if it gets no further."""
    followed = ClusterMap().meet(member(A)).meet(member(B)).assign(range(16384), A).replicate(B, A)
    promoted: list[int] = []
    link = SimpleNamespace(offset=60)

    async def ask(to: Member, message: object, *, timeout_s: float) -> Any:
        assert to.id == A
        asyncio.get_running_loop().call_later(0.05, setattr, link, "offset", reaches)
        return SimpleNamespace(payload=b'{"position": 100, "revision": 7}')

    async def promote(*, revision: int) -> None:
        assert revision == 7
        promoted.append(link.offset)

    node = SimpleNamespace(
        id=B,
        map=followed,
        loop=asyncio.get_running_loop(),
        server=SimpleNamespace(replication=SimpleNamespace(link=link)),
        peers=SimpleNamespace(ask=ask, envelope=lambda kind, to: None),
        promote=promote,
    )
    node.roles = Roles(node)  # type: ignore[arg-type]
    reaches = 100
    await ClusterNode.fail_over(node)  # type: ignore[arg-type]
    assert promoted == [100]
    link.offset, reaches = 60, 99
    with pytest.raises(VerbenaError, match="1 bytes of the log are missing"):
        await ClusterNode.fail_over(node)  # type: ignore[arg-type]
    assert promoted == [100]
