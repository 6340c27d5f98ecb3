"""`verbena failover-drill`: on a running node, and on its own."""

from __future__ import annotations

import json

import pytest

import verbena as library

pytestmark = pytest.mark.usefixtures("quick")


def test_a_running_nodes_sessions_go_on_and_return(verbena, start_node):
    """By the same wire, or by the next and up again after the rest; the report says when."""
    address = start_node(VERBENA_SESSION_ALLOW_DRILL="true")
    with library.connect_blocking(address) as session:
        answer = json.loads(
            verbena("failover-drill", address, "--session", f"{session.id:x}", "--rest", "0", "--json").stdout
        )
        (one,) = answer["sessions"]
        assert (one["before"], one["after"], one["ok"]) == ("shm", "shm", True)
        out = verbena("failover-drill", address, "--wire", "shm", "--rest", "500ms").stdout
        assert f"({session.id:x})" in out
        assert "1 of 1 sessions recovered and are back on their wire" in out
        row = next(line for line in out.splitlines() if f"({session.id:x})" in line)
        assert [word for word in row.split() if word in ("shm", "iwarp")] == ["shm", "iwarp"]
        assert session.sync.call("echo", b"on") == b"on"


def test_a_node_that_does_not_allow_it_says_which_key(verbena, start_node):
    """Exit 1, and the key's name."""
    error = verbena("failover-drill", start_node(), status=1).stderr
    assert "set allow_drill = true in [session]" in error


def test_nothing_to_break_is_said(verbena, start_node):
    """The command's own session does not count."""
    address = start_node(VERBENA_SESSION_ALLOW_DRILL="true")
    assert "no link was broken" in verbena("failover-drill", address, status=1).stdout
    error = verbena("failover-drill", address, "--session", "abc", status=1).stderr
    assert "no session abc" in error


@pytest.mark.usefixtures("nothing_left_behind")
def test_without_a_node_two_processes_are_drilled(verbena):
    """Traffic all the while: nothing lost, nothing done twice, and back on the better wire."""
    report = json.loads(verbena("failover-drill", "--rest", "300ms", "--json").stdout)
    assert report["ok"]
    assert report["calls"] > 10
    assert (report["lost"], report["duplicated"], report["problems"]) == (0, 0, [])
    again, other = report["sessions"]
    assert (again["before"], again["after"]) == ("shm", "shm")
    assert (other["before"], other["after"]) == ("shm", "iwarp")
    assert other["back_s"] >= 0.3
    assert report["copied_bytes"] > 0


@pytest.mark.usefixtures("nothing_left_behind")
def test_its_report_is_formatted(verbena):
    """In words, with the exit status 0."""
    out = verbena("failover-drill", "--rest", "100ms").stdout
    assert "0 lost, 0 duplicated" in out
    assert "2 of 2 sessions recovered" in out


@pytest.mark.parametrize("arguments", [("--rest", "soon"), ("--rest", "2h"), ("--session", "ab")])
def test_wrong_usage(verbena, arguments):
    """Exit 2, with the reason."""
    assert "error:" in verbena("failover-drill", *arguments, status=2).stderr
