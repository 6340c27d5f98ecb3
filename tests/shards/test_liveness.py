"""The failure detector: a silent member is suspected, fails if a majority suspects it, and is alive after its
next message."""

from __future__ import annotations

import pytest

from verbena.shards.liveness import Detector, Health

ALL = ["a", "b", "c"]


def detector(self_id: str = "a") -> Detector:
    found = Detector(self_id, timeout_s=1.0, now=0.0)
    found.members(ALL, now=0.0)
    return found


def test_a_silent_member_is_suspected_within_the_timeout_and_not_before() -> None:
    held = detector()
    held.receive("b", 1, now=0.5)
    assert held.health("b", 1.5, ALL) is Health.ALIVE
    assert held.health("b", 1.51, ALL) is Health.SUSPECTED
    assert held.health("c", 1.1, ALL) is Health.SUSPECTED


def test_a_member_has_failed_when_a_majority_suspects_it() -> None:
    held = detector()
    held.receive("c", 1, now=2.0, suspects=["b"])
    assert held.health("b", 2.0, ALL) is Health.FAILED
    assert held.reports("b", 2.0, ALL) == {"c"}
    assert held.reports("c", 2.0, ALL) == set()
    assert held.health("b", 2.0, [*ALL, "d", "e"]) is Health.SUSPECTED
    held.receive("b", 1, now=2.1)
    assert held.health("b", 2.1, ALL) is Health.ALIVE


def test_suspected_members_do_not_vote() -> None:
    """Only members that receive messages of each other count, so an isolated node cannot mark the others as
    failed."""
    held = detector()
    held.receive("c", 1, now=0.1, suspects=["b"])
    assert held.health("b", 5.0, ALL) is Health.SUSPECTED
    assert held.health("c", 5.0, ALL) is Health.SUSPECTED


def test_old_messages_are_ignored() -> None:
    held = detector()
    assert held.receive("b", 5, now=0.5, load=7)
    assert not held.receive("b", 5, now=3.0)
    assert not held.receive("b", 4, now=3.0)
    assert not held.receive("nobody", 9, now=3.0)
    assert held.silent_s("b", 3.0) == 2.5
    assert held.load_of("b") == 7
    held.restarted("b", now=3.0)
    assert held.receive("b", 1, now=3.1)
    assert held.silent_s("b", 3.5) == pytest.approx(0.4)
    assert held.silent_s("c", 3.5) is None


def test_a_new_member_gets_the_full_timeout() -> None:
    held = detector()
    held.members([*ALL, "d"], now=10.0)
    assert held.health("d", 10.9, ALL) is Health.ALIVE
    assert "d" in held.suspects(11.1)
