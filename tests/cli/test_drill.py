"""`verbena failover-drill`: with a running node, and between two processes of its own."""

from __future__ import annotations

import json

import pytest

import verbena as library

pytestmark = pytest.mark.usefixtures("quick")


def test_sessions_of_a_running_node_recover_and_return(verbena, start_node):
    """A session continues on its wire, or on the next one until the rest has passed; the report has the
    times."""
    address = start_node(VERBENA_SESSION_ALLOW_DRILL="true")
    with library.sync.connect(address) as session:
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


def test_a_node_that_does_not_allow_drills_names_the_key(verbena, start_node):
    """The exit status is 1."""
    error = verbena("failover-drill", start_node(), status=1).stderr
    assert "set allow_drill = true in [session]" in error


def test_a_drill_without_sessions_says_so(verbena, start_node):
    """The session of the command does not count."""
    address = start_node(VERBENA_SESSION_ALLOW_DRILL="true")
    assert "no link was broken" in verbena("failover-drill", address, status=1).stdout
    error = verbena("failover-drill", address, "--session", "abc", status=1).stderr
    assert "no session abc" in error


@pytest.mark.usefixtures("nothing_left_behind")
def test_without_a_node_the_drill_runs_between_two_processes(verbena):
    """No call is lost or duplicated, and the session returns to the better wire."""
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
def test_the_report_is_a_table_and_a_summary(verbena):
    """The exit status is 0."""
    out = verbena("failover-drill", "--rest", "100ms").stdout
    assert "0 lost, 0 duplicated" in out
    assert "2 of 2 sessions recovered" in out


@pytest.mark.parametrize("arguments", [("--rest", "soon"), ("--rest", "2h"), ("--session", "ab")])
def test_wrong_usage(verbena, arguments):
    """Exit 2, with the reason."""
    assert "error:" in verbena("failover-drill", *arguments, status=2).stderr
