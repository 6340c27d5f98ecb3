"""The successor of a primary: the most advanced replica, and nobody while the primary may still be there."""

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


def test_of_two_alike_all_choose_the_same() -> None:
    assert successor(made(), A, {B: at(10), C: at(10)}) == B


def test_a_later_history_counts_more_than_an_offset() -> None:
    """The primary was restarted: its offsets began anew, and who has seen them is further."""
    assert successor(made(), A, {B: at(9999, term=(1, 1)), C: at(5, term=(1, 2))}) == C
    assert successor(made(), A, {B: at(5, term=(10, 1)), C: at(9999, term=(9, 9))}) == B


def test_a_copy_that_is_not_whole_replaces_nobody() -> None:
    assert successor(made(), A, {B: at(0, history=""), C: at(0)}) == C
    assert successor(made(), A, {B: at(0, history="")}) is None


def test_a_replica_without_a_lease_does_not_count() -> None:
    assert successor(made(), A, {B: at(1)}) == B


def test_nobody_replaces_a_primary_that_has_its_lease() -> None:
    assert successor(made(), A, {A: "", B: at(1), C: at(2)}) is None


def test_nobody_is_chosen_while_somebody_has_not_spoken() -> None:
    """It may be further than all others; what it said of another primary, or nonsense, does not count."""
    for word in ("", at(99, of=B), "nonsense", f"{A} 1 r 2", f"{A} 1.x r 2"):
        assert successor(made(), A, {B: at(10), C: word}) is None
    assert successor(made(), A, {}) is None
    assert successor(made(), B, {B: "", C: ""}) is None


def test_what_is_said_is_read_as_it_was_meant() -> None:
    for standing in (Standing(A, (3, 4), "r" * 40, 5), Standing(B)):
        assert Standing.decode(standing.encode()) == standing
