"""The failover policy as a state machine, driven with events and times: what it does, and what it never
does."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from verbena.errors import EXPLANATIONS
from verbena.transport.failover.policy import (
    DRAIN_S,
    OWN_ERRORS,
    PERMANENT_ERRORS,
    Action,
    Dial,
    Failover,
    GiveUp,
    LinkState,
    Probe,
    Wait,
)

WIRES = ("ibv", "iwarp", "quic")
EPOCH = 77


def policy(*wires: str, **options: Any) -> Failover:
    """A policy with two retries 100 ms apart, 30 s to resume, rest times of exactly 1, 2, 4 … s, and turns
    without a limit."""
    defaults: dict[str, Any] = {
        "peer_boot_epoch": EPOCH,
        "connection_retries": 2,
        "retry_delay_ms": 100,
        "resume_timeout_s": 30,
        "jitter": lambda: 0.5,
        "turn_s": math.inf,
    }
    return Failover(wires or WIRES, **{**defaults, **options})


def connect(failover: Failover, *, at: float = 0.0) -> Failover:
    """Connects the policy on its best wire."""
    first = failover.start(at)
    assert isinstance(first, Dial)
    failover.connected(first.wire, at)
    return failover


def use_up(failover: Failover, wire: str, now: float, reason: str = "unreachable") -> tuple[Action, float]:
    """Fails the current dial and its retries. Returns the next action and its time."""
    action = failover.dial_failed(wire, reason, now)
    while isinstance(action, Wait):
        now = action.until
        action = failover.tick(now)
        if not isinstance(action, Dial) or action.wire != wire:
            break
        action = failover.dial_failed(wire, reason, now)
    return action, now


# Stepping down


def test_the_best_wire_is_dialled_first() -> None:
    failover = policy()
    assert failover.start(5) == Dial("ibv", until=35)
    assert failover.state is LinkState.DISCONNECTED
    assert failover.connected("ibv", 6) == Wait(math.inf)
    assert (failover.state, failover.wire) == (LinkState.CONNECTED, "ibv")


def test_the_first_connection_may_have_a_limit_of_its_own() -> None:
    failover = policy()
    assert failover.start(0, timeout_s=2) == Dial("ibv", until=2)
    assert failover.tick(2) == GiveUp("resume_timeout")


def test_a_lost_wire_is_retried_then_the_next_is_dialled() -> None:
    failover = connect(policy())
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 100) == Dial("ibv", until=130)
    assert (failover.state, failover.wire) == (LinkState.DISCONNECTED, None)
    assert failover.dial_failed("ibv", "unreachable", 100.5) == Wait(100.6)
    assert failover.tick(100.55) == Wait(100.6)
    assert failover.tick(100.6) == Dial("ibv", until=130)
    assert failover.dial_failed("ibv", "unreachable", 101) == Wait(101.1)
    assert failover.tick(101.1) == Dial("ibv", until=130)
    assert failover.dial_failed("ibv", "unreachable", 101.2) == Dial("iwarp", until=130)
    failover.connected("iwarp", 101.3)
    assert (failover.state, failover.wire) == (LinkState.CONNECTED, "iwarp")


def test_a_lesser_wire_that_is_lost_is_itself_tried_first_then_the_best() -> None:
    failover = policy()
    failover.start(0)
    action, now = use_up(failover, "ibv", 0)
    assert action == Dial("iwarp", until=30)
    failover.connected("iwarp", now)
    assert failover.link_lost("iwarp", "RETRY_EXC_ERR", 100) == Dial("iwarp", until=130)
    action, now = use_up(failover, "iwarp", 100)
    assert action == Dial("ibv", until=130)


@pytest.mark.parametrize("reason", sorted(PERMANENT_ERRORS - {"session_unknown"}))
def test_permanent_errors_are_not_retried(reason: str) -> None:
    failover = policy()
    failover.start(0)
    assert failover.dial_failed("ibv", reason, 1) == Dial("iwarp", until=30)


def test_when_all_wires_rest_the_peer_is_probed_and_the_first_to_have_rested_is_next() -> None:
    failover = policy("ibv", "iwarp", connection_retries=0)
    failover.start(0)
    assert failover.dial_failed("ibv", "unreachable", 0.25) == Dial("iwarp", until=30)
    assert failover.dial_failed("iwarp", "unreachable", 0.5) == Probe(until=30)
    assert failover.state is LinkState.UNAVAILABLE
    assert failover.probed(None, 0.75) == Wait(1.25)
    assert failover.tick(1.25) == Dial("ibv", until=30)
    assert failover.dial_failed("ibv", "unreachable", 1.3) == Probe(until=30)
    assert failover.probed(EPOCH, 1.4) == Wait(1.5)
    assert failover.tick(1.5) == Dial("iwarp", until=30)
    failover.connected("iwarp", 1.6)
    assert failover.state is LinkState.CONNECTED


def test_slow_dials_keep_no_wire_from_its_turn() -> None:
    """The last wire is dialled even if the first wires have finished resting before it is reached."""
    failover, now = connect(policy(retry_delay_ms=0)), 100.0
    action, dialled = failover.link_lost("ibv", "RETRY_EXC_ERR", now), []
    while len(dialled) < 12:
        assert isinstance(action, Dial)
        now += 2
        dialled.append(action.wire)
        action = failover.dial_failed(action.wire, "connect_timeout", now)
        if isinstance(action, Wait):
            action = failover.tick(action.until)
    assert dialled == [wire for wire in (*WIRES, "ibv") for _ in range(3)]


def test_no_wire_uses_up_the_time_of_the_others() -> None:
    """However many retries a wire has, the next wire is dialled after the first one's share of the time."""
    failover = connect(policy(connection_retries=1000, retry_delay_ms=1000))
    failover.link_lost("ibv", "RETRY_EXC_ERR", 100)
    action, now = use_up(failover, "ibv", 100)
    assert (action, now) == (Dial("iwarp", until=130), 109)
    action, now = use_up(failover, "iwarp", now)
    assert (action, now) == (Dial("quic", until=130), 118)


def test_a_silent_wire_does_not_keep_the_fallback_waiting() -> None:
    """While another wire has not been tried in this outage, a wire is dialled for `turn_s` only, and not
    retried beyond it."""
    failover = connect(policy(turn_s=1.5, retry_delay_ms=1000))
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 100) == Dial("ibv", until=101.5)
    assert failover.dial_failed("ibv", "connect_timeout", 101.5) == Dial("iwarp", until=103)
    assert failover.dial_failed("iwarp", "unreachable", 101.6) == Wait(102.6)
    assert failover.tick(102.6) == Dial("iwarp", until=103)
    assert failover.dial_failed("iwarp", "connect_timeout", 103) == Dial("quic", until=130), "the last one"
    assert failover.dial_failed("quic", "connect_timeout", 108) == Wait(109)
    assert failover.tick(109) == Dial("quic", until=130)
    assert failover.dial_failed("quic", "connect_timeout", 114) == Dial("ibv", until=130), "each had a turn"


def test_a_first_connection_reaches_the_fallback_as_fast() -> None:
    """The limit of a turn holds before the first link too, and not for a wire that is alone."""
    assert policy(turn_s=1.5).start(5, timeout_s=60) == Dial("ibv", until=6.5)
    assert policy("ibv", turn_s=1.5).start(5) == Dial("ibv", until=35)
    assert policy(turn_s=1.5, demanded="ibv").start(5) == Dial("ibv", until=35)


def test_a_wire_that_rests_for_longer_does_not_shorten_a_turn() -> None:
    """Only a wire that could be dialled at the end of the turn is worth ending it."""
    failover = policy("ibv", "iwarp", turn_s=1.5, first_rest_s=4, connection_retries=0)
    failover.start(0)
    failover.dial_failed("ibv", "unreachable", 0)
    failover.connected("iwarp", 0)
    assert failover.link_lost("iwarp", "RETRY_EXC_ERR", 1) == Dial("iwarp", until=31), "ibv rests until 4"


def test_rests_grow_but_leave_every_wire_its_chance() -> None:
    """Rest times double from 1 s and never exceed a quarter of the time to resume."""
    failover = policy("ibv", connection_retries=0)
    action, now, rests = failover.start(0), 0.0, []
    while not isinstance(action, GiveUp):
        if isinstance(action, Dial):
            action = failover.dial_failed("ibv", "unreachable", now)
        elif isinstance(action, Probe):
            action = failover.probed(None, now)
        else:
            rests.append(action.until - now)
            now = action.until
            action = failover.tick(now)
    assert rests == [1, 2, 4, 7.5, 7.5, 7.5, 0.5]
    assert (action.reason, now, failover.state) == ("resume_timeout", 30, LinkState.FAILED)


def test_the_time_is_over_even_while_a_dial_is_under_way() -> None:
    failover = connect(policy())
    failover.link_lost("ibv", "RETRY_EXC_ERR", 10)
    assert failover.tick(39) == Wait(40)
    assert failover.tick(40) == GiveUp("resume_timeout")
    assert failover.connected("ibv", 41) == failover.dial_failed("ibv", "x", 41) == GiveUp("resume_timeout")


def test_without_time_to_resume_a_broken_link_is_the_end() -> None:
    failover = policy(resume_timeout_s=0)
    assert failover.start(0, timeout_s=5) == Dial("ibv", until=5)
    failover.connected("ibv", 1)
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 10) == GiveUp("resume_timeout")


def test_without_a_common_wire_there_is_nothing_to_try() -> None:
    failover = Failover(
        [],
        peer_boot_epoch=1,
        connection_retries=1,
        retry_delay_ms=1,
        resume_timeout_s=1,
        jitter=lambda: 0.5,
    )
    assert failover.state is LinkState.UNAVAILABLE
    assert failover.start(0) == GiveUp("no_common_wire")


def test_a_demanded_wire_is_never_replaced() -> None:
    failover = policy(demanded="iwarp", connection_retries=0)
    assert failover.start(0) == Dial("iwarp", until=30)
    assert failover.dial_failed("iwarp", "unreachable", 0) == Probe(until=30)
    assert failover.probed(EPOCH, 0) == Wait(1)
    assert failover.tick(1) == Dial("iwarp", until=30)
    assert failover.connected("iwarp", 1) == Wait(math.inf)
    assert policy(demanded="roce").start(0) == GiveUp("no_common_wire")


# Errors of the program, and wires that break soon


@pytest.mark.parametrize("status", sorted(OWN_ERRORS))
def test_the_programs_own_error_costs_the_wire_nothing(status: str) -> None:
    """Even if the error recurs right after connecting, the wire is dialled at once and no other wire is
    considered."""
    failover, now = connect(policy()), 0.0
    for _ in range(20):
        now += 0.001
        assert failover.link_lost("ibv", status, now) == Dial("ibv", until=now + 30)
        assert failover.connected("ibv", now) == Wait(math.inf)


def test_a_wire_that_breaks_soon_once_is_dialled_again() -> None:
    failover = connect(policy())
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 0.1) == Dial("ibv", until=30.1)


def test_a_wire_that_breaks_soon_again_rests_longer_and_longer() -> None:
    """The session steps down, and returns to the better wire after it has rested for 1 s, 2 s, 4 s."""
    failover, now = connect(policy()), 0.1
    failover.link_lost("ibv", "RETRY_EXC_ERR", now)
    failover.connected("ibv", now)
    for rest_s in (1, 2, 4):
        assert failover.link_lost("ibv", "RETRY_EXC_ERR", now) == Dial("iwarp", until=now + 30)
        action = failover.connected("iwarp", now)
        assert isinstance(action, Wait)
        assert action.until - now >= rest_s
        now = action.until
        assert failover.tick(now) == Dial("ibv", until=math.inf, background=True)
        failover.connected("ibv", now)


@pytest.mark.parametrize("resume_s", [30, 0.2])
def test_a_wire_that_is_alone_does_not_rest_but_pauses(resume_s: float) -> None:
    """A single wire is dialled soon however often it breaks, but never in a tight loop."""
    failover, now = connect(policy("ibv", resume_timeout_s=resume_s)), 0.0
    pause_s = min(0.1, resume_s / 4)
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", now) == Dial("ibv", until=now + resume_s)
    for _ in range(20):
        failover.connected("ibv", now)
        assert failover.link_lost("ibv", "RETRY_EXC_ERR", now) == Wait(now + pause_s)
        assert failover.tick(now + pause_s) == Dial("ibv", until=now + resume_s)
        now += 1
    failover.connected("ibv", now)
    assert failover.link_lost("ibv", "REM_ACCESS_ERR", now) == Dial("ibv", until=now + resume_s)


def test_a_link_that_held_resets_the_rest_time() -> None:
    failover = connect(policy())
    for now in (1, 2, 3):
        action = failover.link_lost("ibv", "RETRY_EXC_ERR", now)
        if action != Dial("ibv", until=now + 30):
            break
        failover.connected("ibv", now)
    failover.connected("iwarp", 3)
    failover.tick(10)
    failover.connected("ibv", 10)
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 15) == Dial("ibv", until=45)
    failover.connected("ibv", 15)
    assert failover.link_lost("ibv", "RETRY_EXC_ERR", 16) == Dial("ibv", until=46)
    _, now = use_up(failover, "ibv", 16)
    assert failover.connected("iwarp", now) == Wait(now + 2), "it rested 1 s, and 2 s are next"


# Stepping up


def on_a_lesser_wire() -> tuple[Failover, float]:
    """A policy that is connected on quic, because ibv and iwarp failed, and the time when its wait ends."""
    failover = policy(connection_retries=0)
    failover.start(0)
    failover.dial_failed("ibv", "unreachable", 0)
    failover.dial_failed("iwarp", "unreachable", 0)
    assert failover.connected("quic", 0.5) == Wait(2.5)
    return failover, 2.5


def test_better_wires_are_retried_in_the_background_with_growing_rests() -> None:
    failover, now = on_a_lesser_wire()
    seen: list[tuple[str, float]] = []
    while now < 100:
        action = failover.tick(now)
        while isinstance(action, Dial):
            assert action.background
            assert (failover.state, failover.wire) == (LinkState.CONNECTED, "quic")
            seen.append((action.wire, now))
            action = failover.dial_failed(action.wire, "unreachable", now)
        assert isinstance(action, Wait)
        now = action.until
    for better in ("ibv", "iwarp"):
        assert [at for wire, at in seen if wire == better] == [2.5, 4.5, 8.5, 16.5, 32.5, 64.5]


def test_rests_end_at_a_minute() -> None:
    failover, now = on_a_lesser_wire()
    gap = 0.0
    for _ in range(40):
        action = failover.tick(now)
        while isinstance(action, Dial):
            action = failover.dial_failed(action.wire, "unreachable", now)
        assert isinstance(action, Wait)
        gap, now = action.until - now, action.until
    assert gap <= 60
    assert failover.wire == "quic"


def test_a_long_rest_is_cut_short_when_the_last_link_breaks() -> None:
    """A better wire that was retried once a minute is dialled within a quarter of the time to resume."""
    failover, now = on_a_lesser_wire()
    while now < 200:
        action = failover.tick(now)
        while isinstance(action, Dial):
            action = failover.dial_failed(action.wire, "unreachable", now)
        assert isinstance(action, Wait)
        now = action.until
    failover.tick(now)
    failover.dial_failed("ibv", "unreachable", now)
    failover.dial_failed("iwarp", "unreachable", now)
    assert failover.link_lost("quic", "RETRY_EXC_ERR", now + 10) == Dial("quic", until=now + 40)
    assert failover.dial_failed("quic", "unreachable", now + 10) == Probe(until=now + 40)
    assert failover.probed(None, now + 10) == Wait(now + 11)
    assert failover.tick(now + 17.5) == Dial("ibv", until=now + 40)


def test_a_background_dial_that_is_refused_leaves_the_session_alone() -> None:
    failover, now = on_a_lesser_wire()
    failover.tick(now)
    assert failover.dial_failed("ibv", "session_unknown", now) == Dial("iwarp", math.inf, background=True)
    assert (failover.state, failover.wire) == (LinkState.CONNECTED, "quic")


def test_a_better_wire_takes_over_when_it_connects() -> None:
    failover, now = on_a_lesser_wire()
    assert failover.tick(now) == Dial("ibv", until=math.inf, background=True)
    assert failover.tick(now + 1) == Wait(math.inf)
    assert failover.connected("ibv", now + 1) == Wait(math.inf)
    assert failover.wire == "ibv"
    assert failover.link_lost("quic", "WR_FLUSH_ERR", now + 1) == Wait(math.inf)
    assert failover.wire == "ibv"


def test_a_link_lost_during_a_background_dial_waits_for_that_dial() -> None:
    """No second dial runs beside the background dial; if that fails, the lost wire is dialled next."""
    failover, now = on_a_lesser_wire()
    failover.tick(now)
    assert failover.link_lost("quic", "RETRY_EXC_ERR", now + 10) == Wait(now + 40)
    assert failover.state is LinkState.DISCONNECTED
    assert failover.dial_failed("ibv", "unreachable", now + 11) == Dial("quic", until=now + 40)

    failover, now = on_a_lesser_wire()
    failover.tick(now)
    failover.link_lost("quic", "RETRY_EXC_ERR", now + 10)
    failover.connected("ibv", now + 11)
    assert (failover.state, failover.wire) == (LinkState.CONNECTED, "ibv")


# Whether the peer still runs and knows the session


def test_a_peer_with_another_boot_epoch_was_restarted() -> None:
    failover = connect(policy())
    failover.link_lost("ibv", "RETRY_EXC_ERR", 10)
    assert failover.dial_failed("ibv", "session_unknown", 11) == Probe(until=40)
    assert failover.tick(12) == Wait(40)
    assert failover.probed(EPOCH + 1, 13) == GiveUp("peer_restarted")
    assert failover.state is LinkState.FAILED


def test_a_peer_that_runs_but_knows_the_session_on_no_wire_has_dropped_it() -> None:
    """The answer of one wire is not enough, because its address may belong to another node by now."""
    failover = connect(policy("ibv", "iwarp"))
    failover.link_lost("ibv", "RETRY_EXC_ERR", 10)
    failover.dial_failed("ibv", "session_unknown", 11)
    assert failover.probed(EPOCH, 12) == Dial("iwarp", until=40)
    assert failover.dial_failed("iwarp", "session_unknown", 13) == Probe(until=40)
    assert failover.probed(EPOCH, 14) == GiveUp("session_unknown")


def test_answers_of_an_earlier_outage_do_not_count() -> None:
    failover = connect(policy("ibv", "iwarp"))
    failover.link_lost("ibv", "RETRY_EXC_ERR", 10)
    failover.dial_failed("ibv", "session_unknown", 11)
    assert failover.probed(EPOCH, 11) == Dial("iwarp", until=40)
    failover.connected("iwarp", 11)
    failover.link_lost("iwarp", "RETRY_EXC_ERR", 20)
    assert failover.dial_failed("iwarp", "session_unknown", 20) == Probe(until=50)
    assert failover.probed(EPOCH, 20) == Dial("ibv", until=50)


def test_an_unanswered_probe_decides_nothing() -> None:
    failover = connect(policy("ibv"))
    failover.link_lost("ibv", "RETRY_EXC_ERR", 10)
    failover.dial_failed("ibv", "session_unknown", 11)
    assert failover.probed(None, 11.5) == Wait(12)
    assert failover.tick(12) == Dial("ibv", until=40)


# The end of the peer's process


def test_a_dead_peer_ends_the_session_when_its_link_breaks() -> None:
    """What the peer sent before it ended may still be on the way, so a link that is in use stays until it
    breaks."""
    failover = connect(policy(drain_s=0.05))
    assert failover.peer_died(100) == Wait(100.05)
    assert (failover.state, failover.wire) == (LinkState.CONNECTED, "ibv")
    assert failover.link_lost("ibv", "peer_died", 100.01) == GiveUp("peer_died")
    assert failover.state is LinkState.FAILED


def test_a_dead_peer_ends_the_session_although_its_link_does_not_break() -> None:
    failover = connect(policy(drain_s=0.05))
    failover.peer_died(100)
    assert failover.peer_died(100.04) == failover.tick(100.04) == Wait(100.05)
    assert failover.tick(100.05) == GiveUp("peer_died")


def test_between_links_a_dead_peer_ends_the_session_at_once() -> None:
    """Whether a dial is under way, a probe, or a rest."""
    dialling = connect(policy())
    dialling.link_lost("ibv", "peer_died", 100)
    assert dialling.peer_died(100) == GiveUp("peer_died")

    probing = policy("ibv", connection_retries=0)
    probing.start(0)
    probing.dial_failed("ibv", "unreachable", 1)
    assert probing.peer_died(1) == GiveUp("peer_died")

    resting = policy("ibv", connection_retries=0)
    resting.start(0)
    resting.dial_failed("ibv", "unreachable", 1)
    assert isinstance(resting.probed(None, 1), Wait)
    assert resting.peer_died(1) == GiveUp("peer_died")
    assert resting.tick(2) == resting.peer_died(2) == GiveUp("peer_died")


def test_a_dead_peer_is_dialled_no_more() -> None:
    """A background dial that was under way is the last one, and its link is not kept."""
    failover, now = on_a_lesser_wire()
    assert failover.tick(now) == Dial("ibv", until=math.inf, background=True)
    assert failover.peer_died(now) == Wait(now + 0.05)
    assert failover.dial_failed("ibv", "peer_died", now) == Wait(now + 0.05)
    assert failover.tick(now + 0.05) == GiveUp("peer_died")

    failover, now = on_a_lesser_wire()
    failover.tick(now)
    failover.peer_died(now)
    assert failover.connected("ibv", now + 0.01) == Wait(now + 0.05)
    assert failover.tick(now + 0.05) == GiveUp("peer_died")


# Closing, misuse and the history


def test_closing_ends_everything() -> None:
    failover = connect(policy())
    assert failover.close(1) == GiveUp("closed")
    assert (failover.state, failover.wire) == (LinkState.FAILED, None)
    for action in (
        failover.close(2),
        failover.tick(3),
        failover.link_lost("ibv", "x", 3),
        failover.probed(EPOCH, 3),
    ):
        assert action == GiveUp("closed")


def test_an_event_that_no_action_requested_is_a_value_error() -> None:
    failover = connect(policy())
    for report in (
        lambda: failover.connected("iwarp", 1),
        lambda: failover.dial_failed("ibv", "unreachable", 1),
        lambda: failover.probed(EPOCH, 1),
    ):
        with pytest.raises(ValueError, match="under way"):
            report()


def test_the_description_lists_attempts_with_their_reasons() -> None:
    failover = connect(policy("ibv", "iwarp"))
    failover.link_lost("ibv", "RETRY_EXC_ERR", 100)
    _, now = use_up(failover, "ibv", 100.5)
    use_up(failover, "iwarp", now + 1, "connect_timeout")
    failover.tick(130)
    assert failover.describe_history() == (
        "ibv broke (RETRY_EXC_ERR) at 0.0 s; ibv dial failed (unreachable) ×3 at 0.7 s;"
        " iwarp dial failed (connect_timeout) ×3 at 1.9 s; gave up (resume_timeout) at 30.0 s"
    )
    assert repr(failover).startswith("Failover(failed, wire=None, wires=[ibv, iwarp], 'ibv broke")
    assert [str(line) for line in failover.history][:2] == ["ibv connected", "ibv broke (RETRY_EXC_ERR)"]


def test_the_history_and_its_description_are_bounded() -> None:
    failover = connect(policy())
    for number in range(500):
        failover.link_lost("ibv", "REM_ACCESS_ERR", number)
        failover.connected("ibv", number)
    failover.link_lost("ibv", "RETRY_EXC_ERR", 1000)
    for number in range(30):
        failover.dial_failed("ibv", f"reason {number}", 1000)
        action = failover.tick(1000 + number)
        if not isinstance(action, Dial) or action.wire != "ibv":
            break
    assert len(failover.history) <= 64
    assert len(failover.describe_history()) < 1200


def test_every_reason_to_give_up_is_explained() -> None:
    reasons = ("resume_timeout", "peer_restarted", "peer_died", "session_unknown", "no_common_wire", "closed")
    for reason in reasons:
        assert reason in EXPLANATIONS
    assert EXPLANATIONS.keys() >= OWN_ERRORS | PERMANENT_ERRORS


# All sequences of events

REASONS = st.sampled_from(
    ["RETRY_EXC_ERR", "unreachable", "connect_timeout", *sorted(OWN_ERRORS)[:2], *sorted(PERMANENT_ERRORS)]
)


class AnyEvents(RuleBasedStateMachine):
    """Any order of events at any times: checks each action against the rules."""

    @initialize(
        wires=st.permutations(WIRES),
        count=st.integers(1, 3),
        demanded=st.booleans(),
        retries=st.integers(0, 3),
        delay_ms=st.sampled_from([0, 50, 5000]),
        resume_s=st.sampled_from([0.5, 10, 300]),
        jitter=st.floats(0, 1),
        turn_s=st.sampled_from([0.2, 1.5, math.inf]),
    )
    def begin(
        self,
        wires: list[str],
        count: int,
        demanded: bool,
        retries: int,
        delay_ms: int,
        resume_s: float,
        jitter: float,
        turn_s: float,
    ) -> None:
        self.offered = wires[:count]
        wanted = self.offered[-1] if demanded else None
        self.allowed = [wanted] if wanted else self.offered
        self.resume_s = resume_s
        self.failover = policy(
            *self.offered,
            demanded=wanted,
            connection_retries=retries,
            retry_delay_ms=delay_ms,
            resume_timeout_s=resume_s,
            jitter=lambda: jitter,
            turn_s=turn_s,
        )
        self.now, self.outage_since = 0.0, 0.0
        self.dialling: Dial | None = None
        self.probing = False
        self.alarm = math.inf
        self.peer_died_at: float | None = None
        self.take(self.failover.start(0))

    def take(self, action: Action) -> None:
        failover = self.failover
        connected = failover.state is LinkState.CONNECTED
        if isinstance(action, GiveUp):
            assert failover.state is LinkState.FAILED
            self.dialling, self.probing, self.alarm = None, False, math.inf
            return
        assert failover.state is not LinkState.FAILED
        self.alarm = action.until
        if self.peer_died_at is not None:
            assert connected
            assert isinstance(action, Wait)
            assert action.until == self.peer_died_at + DRAIN_S
        if not connected:
            assert self.now < self.outage_since + self.resume_s
            assert action.until <= self.outage_since + self.resume_s
        if isinstance(action, Wait):
            assert action.until > self.now or (connected and action.until >= self.now)
            assert connected or math.isfinite(action.until)
            return
        assert self.dialling is None, "two at once"
        assert not self.probing, "two at once"
        if isinstance(action, Probe):
            assert not connected
            self.probing = True
            return
        assert action.wire in self.allowed
        assert action.background is connected
        if connected:
            assert failover.wire is not None
            assert self.allowed.index(action.wire) < self.allowed.index(failover.wire)
        self.dialling = action

    @precondition(lambda self: self.failover.state is not LinkState.FAILED)
    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 4.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now = min(self.now + seconds, self.alarm)
        self.take(self.failover.tick(self.now))

    @precondition(lambda self: math.isfinite(self.alarm))
    @rule()
    def the_alarm_rings(self) -> None:
        self.now = max(self.now, self.alarm)
        self.take(self.failover.tick(self.now))

    @precondition(lambda self: self.dialling is not None)
    @rule()
    def the_dial_succeeds(self) -> None:
        assert self.dialling is not None
        wire, self.dialling = self.dialling.wire, None
        self.take(self.failover.connected(wire, self.now))
        assert (self.failover.state, self.failover.wire) == (LinkState.CONNECTED, wire)

    @precondition(lambda self: self.dialling is not None)
    @rule(reason=REASONS)
    def the_dial_fails(self, reason: str) -> None:
        assert self.dialling is not None
        before = self.failover.wire
        wire, self.dialling = self.dialling.wire, None
        self.take(self.failover.dial_failed(wire, reason, self.now))
        assert self.failover.wire == before, "a failed dial leaves the present link alone"

    @precondition(lambda self: self.probing)
    @rule(epoch=st.sampled_from([None, EPOCH, EPOCH, EPOCH + 1]))
    def the_probe_ends(self, epoch: int | None) -> None:
        self.probing = False
        action = self.failover.probed(epoch, self.now)
        assert (action == GiveUp("peer_restarted")) is (epoch == EPOCH + 1)
        self.take(action)

    @precondition(lambda self: self.peer_died_at is None and self.failover.state is not LinkState.FAILED)
    @rule()
    def the_peer_dies(self) -> None:
        self.peer_died_at = self.now
        action = self.failover.peer_died(self.now)
        assert isinstance(action, GiveUp) is (self.failover.wire is None)
        self.take(action)

    @precondition(lambda self: self.failover.state is LinkState.CONNECTED)
    @rule(reason=REASONS)
    def the_link_breaks(self, reason: str) -> None:
        wire = self.failover.wire
        assert wire is not None
        self.outage_since = self.now
        under_way = self.dialling is not None
        action = self.failover.link_lost(wire, reason, self.now)
        if self.peer_died_at is not None:
            assert action == GiveUp("peer_died")
        elif reason in OWN_ERRORS and not under_way:
            assert isinstance(action, Dial)
            assert action.wire == wire
        self.take(action)

    @rule(wire=st.sampled_from(WIRES), reason=REASONS)
    def late_news_come(self, wire: str, reason: str) -> None:
        if wire != self.failover.wire:
            before = self.failover.state, self.failover.wire
            self.take(self.failover.link_lost(wire, reason, self.now))
            if not isinstance(self.failover.tick(self.now), GiveUp):
                assert self.failover.wire == before[1]

    @invariant()
    def it_is_somewhere(self) -> None:
        """The policy is connected, waits for something with a deadline, or has given up."""
        state = self.failover.state
        if state in (LinkState.DISCONNECTED, LinkState.UNAVAILABLE):
            assert math.isfinite(self.alarm)
        assert (self.failover.wire is not None) is (state is LinkState.CONNECTED)


AnyEvents.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestAnyEvents = AnyEvents.TestCase


@given(
    count=st.integers(1, 3),
    retries=st.integers(0, 5),
    delay_ms=st.sampled_from([0, 1, 100, 10_000]),
    resume_s=st.sampled_from([0.0, 0.2, 5, 30, 600]),
    turn_s=st.sampled_from([1.5, math.inf]),
    data=st.data(),
)
def test_when_nothing_works_it_ends_in_time_after_trying_every_wire(
    count: int, retries: int, delay_ms: int, resume_s: float, turn_s: float, data: st.DataObject
) -> None:
    """Whatever fails and however long it takes: the policy ends within resume_timeout_s after a bounded
    number of dials."""
    wires = WIRES[:count]
    failover = policy(
        *wires,
        connection_retries=retries,
        retry_delay_ms=delay_ms,
        resume_timeout_s=resume_s,
        turn_s=turn_s,
    )
    failover.start(0, timeout_s=1)
    failover.connected(wires[0], 0)
    reasons = st.sampled_from(["unreachable", "connect_timeout", "no_device"])
    now = start = 1000.0
    action, dialled, slow = failover.link_lost(wires[0], "RETRY_EXC_ERR", now), [], False
    while not isinstance(action, GiveUp):
        assert now < start + resume_s
        takes_s = data.draw(st.sampled_from([0.0, 0.0, 0.0, 2.0])) if len(dialled) < 50 else 0.0
        slow = slow or takes_s > 0
        if isinstance(action, Wait):
            now = action.until
            action = failover.tick(now)
            continue
        now = min(now + takes_s, action.until)
        if isinstance(action, Dial):
            dialled.append(action.wire)
            action = failover.dial_failed(action.wire, data.draw(reasons), now)
        else:
            action = failover.probed(None, now)
    assert action == GiveUp("resume_timeout")
    assert now <= start + resume_s
    if resume_s and not slow:
        assert set(dialled) == set(wires)
    turns = 1 + resume_s / min(0.75, resume_s / 4) if resume_s else 0
    assert len(dialled) <= count * (retries + 1) * turns
