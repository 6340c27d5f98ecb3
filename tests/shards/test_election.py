"""The successor of a primary: the most advanced replica, and none while the primary may hold its lease."""

from __future__ import annotations

from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.election import Standing, successor

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def made() -> ClusterMap:
    found = ClusterMap()
    for id in (A, B, C):
        found = found.meet(Member(id, "127.0.0.1", 1, "127.0.0.1:2"))
    return found.assign(range(16384), A).replicate(B, A).replicate(C, A)


def at(offset: int, *, term: tuple[int, int] = (1, 1), history: str = "r", of: str = A) -> str:
    return Standing(of, term, history, offset).encode()


def test_the_most_advanced_is_chosen() -> None:
    assert successor(made(), A, {B: at(10), C: at(11)}) == C
    assert successor(made(), A, {B: at(11), C: at(10)}) == B


def test_ties_are_resolved_deterministically() -> None:
    assert successor(made(), A, {B: at(10), C: at(10)}) == B


def test_a_later_history_counts_more_than_an_offset() -> None:
    """A restarted primary starts new offsets, so a replica with the later history is further."""
    assert successor(made(), A, {B: at(9999, term=(1, 1)), C: at(5, term=(1, 2))}) == C
    assert successor(made(), A, {B: at(5, term=(10, 1)), C: at(9999, term=(9, 9))}) == B


def test_an_incomplete_copy_is_never_chosen() -> None:
    assert successor(made(), A, {B: at(0, history=""), C: at(0)}) == C
    assert successor(made(), A, {B: at(0, history="")}) is None


def test_a_replica_without_a_lease_does_not_count() -> None:
    assert successor(made(), A, {B: at(1)}) == B


def test_a_primary_with_a_lease_is_not_replaced() -> None:
    assert successor(made(), A, {A: "", B: at(1), C: at(2)}) is None


def test_no_replica_is_chosen_before_all_leaseholders_have_announced() -> None:
    """A silent replica may be further; announcements about another primary and invalid texts do not
    count."""
    for word in ("", at(99, of=B), "nonsense", f"{A} 1 r 2", f"{A} 1.x r 2"):
        assert successor(made(), A, {B: at(10), C: word}) is None
    assert successor(made(), A, {}) is None
    assert successor(made(), B, {B: "", C: ""}) is None


def test_a_standing_survives_encoding() -> None:
    for standing in (Standing(A, (3, 4), "r" * 40, 5), Standing(B)):
        assert Standing.decode(standing.encode()) == standing
