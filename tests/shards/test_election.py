"""The successor of a primary: the most advanced replica, and nobody while the primary may still be there."""

from __future__ import annotations

from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.election import successor

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def made() -> ClusterMap:
    found = ClusterMap()
    for id in (A, B, C):
        found = found.meet(Member(id, "127.0.0.1", 1, "127.0.0.1:2"))
    return found.assign(range(16384), A).replicate(B, A).replicate(C, A)


def test_the_most_advanced_is_chosen() -> None:
    assert successor(made(), A, {B, C}, {B: 10, C: 11}) == C
    assert successor(made(), A, {B, C}, {B: 11, C: 10}) == B


def test_of_two_alike_all_choose_the_same() -> None:
    assert successor(made(), A, {B, C}, {B: 10, C: 10}) == B


def test_a_replica_without_a_lease_does_not_count() -> None:
    assert successor(made(), A, {B}, {B: 1, C: 99}) == B


def test_nobody_replaces_a_primary_that_has_its_lease() -> None:
    assert successor(made(), A, {A, B, C}, {B: 1, C: 2}) is None


def test_nobody_is_chosen_while_somebody_has_not_spoken() -> None:
    """It may be further than all others."""
    assert successor(made(), A, {B, C}, {B: 10}) is None
    assert successor(made(), A, set(), {B: 10}) is None
    assert successor(made(), B, {B, C}, {}) is None
