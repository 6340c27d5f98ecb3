"""How a replica watches its primary's lease and replaces that primary."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from verbena.errors import VerbenaError
from verbena.kv.cluster.replica_promotion import ReplicaPromotion
from verbena.shards.cluster_map import ClusterMap, Member

A, B = "a" * 40, "b" * 40


def member(id: str) -> Member:
    return Member(id, "127.0.0.1", 7000, "127.0.0.1:7001")


def promotion_of_replica(map: Any, replication: Any, sessions: Any = None) -> ReplicaPromotion:
    """The promotion of B, a replica of A; collaborators that the tests do not need are None."""
    unused: Any = None
    return ReplicaPromotion(
        B,
        map=map,
        engine=unused,
        guard=unused,
        sessions=sessions,
        replication=lambda: replication,
        announce=unused,
        spawn=unused,
    )


async def test_a_replica_that_is_already_primary_replaces_no_other() -> None:
    """Its change of the map succeeded but the answer was lost: it finds that out while it reads the
    leases."""
    followed = ClusterMap().meet(member(A)).meet(member(B)).assign(range(16384), A).replicate(B, A)
    done: list[str] = []

    class Store:
        async def announcements(self) -> dict[str, str]:
            map.map = followed.promote(B)
            replication.link = None
            return {B: ""}

    def do(name: str) -> Any:
        return lambda *arguments: done.append(name)

    replication = SimpleNamespace(link=object(), stop_following=do("stop_following"), follow=do("follow"))
    map = SimpleNamespace(map=followed, store=Store())
    assert await promotion_of_replica(map, replication).successor_of(A) is None
    assert done == []


async def test_a_planned_failover_changes_the_map_when_all_of_the_log_is_here_and_not_before() -> None:
    """The primary has stopped writing at 100: a replica at 60 waits, and gives up if it does not advance."""
    followed = ClusterMap().meet(member(A)).meet(member(B)).assign(range(16384), A).replicate(B, A)
    promoted: list[int] = []
    link = SimpleNamespace(offset=60)

    async def request(to: Member, message: object, *, timeout_s: float) -> Any:
        assert to.id == A
        asyncio.get_running_loop().call_later(0.05, setattr, link, "offset", reaches)
        return SimpleNamespace(payload=b'{"position": 100, "revision": 7}')

    async def promote(member: str, *, revision: int) -> None:
        assert (member, revision) == (B, 7)
        promoted.append(link.offset)

    promotion = promotion_of_replica(
        SimpleNamespace(map=followed, promote=promote),
        SimpleNamespace(link=link),
        SimpleNamespace(request=request, envelope=lambda kind, to: None),
    )
    reaches = 100
    await promotion.run_planned()
    assert promoted == [100]
    link.offset, reaches = 60, 99
    with pytest.raises(VerbenaError, match="1 bytes of the log are missing"):
        await promotion.run_planned()
    assert promoted == [100]
