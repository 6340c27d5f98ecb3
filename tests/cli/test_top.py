"""`verbena top` with a running node."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from support.terminal import rest_of

import verbena as library
from verbena.cli import top_view

COMMAND = [sys.executable, "-m", "verbena"]


@pytest.fixture
def busy(start_node) -> Iterator[str]:
    """A node with one iwarp session that makes calls continuously."""
    address = start_node(VERBENA_SESSION_NODE_NAME="kitchen")
    stop = threading.Event()
    with library.sync.connect(address, wire="iwarp") as session:

        def call() -> None:
            while not stop.is_set():
                session.sync.call("echo", b"x" * 1000)

        thread = threading.Thread(target=call)
        thread.start()
        yield address
        stop.set()
        thread.join(20)


def test_once_prints_one_screen(verbena, busy):
    """It shows the node, its wires, why others are not usable, and each session with its rates, without
    cursor movements."""
    out = verbena("top", busy, "--once", "--interval", "0.3").stdout
    assert out.startswith("kitchen  up ")
    assert "1 sessions" in out
    assert "SESSION" in out
    (row,) = (line for line in out.splitlines() if "127.0.0.1:" in line)
    assert " iwarp " in row
    assert "the client chose it" in row
    assert "B/s" in row
    assert "\x1b" not in out
    assert len({len(line) <= 110 for line in out.splitlines()}) == 1


def test_json_contains_status_and_rates(verbena, busy):
    """The rates cover the time between two statuses."""
    document = json.loads(verbena("top", busy, "--json", "--interval", "0.3").stdout)
    assert document["node"] == "kitchen"
    (session,) = document["sessions"]
    rates = document["rates"]["sessions"][session["id"]]
    assert rates["receives"] > 0
    assert rates["in_bytes"] > 100 * rates["receives"]  # acknowledgements are messages, too
    assert document["rates"]["wires"]["iwarp"]["receives"] > 0


def test_on_a_terminal_it_refreshes_until_interrupted(busy):
    """It uses the terminal's alternate screen, and restores the screen at its end."""
    master, slave = pty.openpty()
    command = [*COMMAND, "top", busy, "--interval", "0.1"]
    with subprocess.Popen(command, stdout=slave, stderr=slave) as process:
        os.close(slave)
        output = b""
        while output.count(b"kitchen") < 3:
            output += os.read(master, 65536)
        process.send_signal(signal.SIGTERM)
        output += rest_of(master)
        assert process.wait(30) == 128 + signal.SIGTERM
    os.close(master)
    assert output.startswith(b"\x1b[?1049h")
    assert b"\x1b[?1049l" in output
    assert b"Traceback" not in output


def test_without_an_address_it_prints_an_example(verbena):
    """The text names the source of secret and certificates."""
    error = verbena("top", status=2).stderr
    assert "verbena top 127.0.0.1:7471" in error
    assert "VERBENA_SESSION_SECRET" in error


def test_a_closed_port_and_a_wrong_secret_are_errors_without_traceback(verbena, start_node, monkeypatch):
    """The text contains the remedy."""
    address = start_node()
    assert "unreachable" in verbena("top", "127.0.0.1:1", "--once", status=1).stderr
    monkeypatch.setenv("VERBENA_SESSION_SECRET", "another secret altogether")
    error = verbena("top", address, "--once", status=1).stderr
    assert "credentials" in error
    assert "another secret" not in error


def _status(at: float, received: int, buckets: list[list[int]], **more: object) -> dict[str, object]:
    counters = {
        **dict.fromkeys(("send_ops", "read_ops", "write_ops", "send_bytes", "write_bytes", "read_bytes"), 0),
        **dict.fromkeys(("links", "replayed_messages", "completion_errors", "damaged_messages"), 0),
        "recv_ops": received,
        "recv_bytes": received * 100,
        "latency": {"call": {"buckets": buckets}},
    }
    session = {
        "id": "a1",
        "peer": "10.0.0.1:5",
        "peer_name": "evil\x1b[2J",
        "state": "connected",
        "wire": "shm",
        "reason": "",
        "principal": "uid:0",
        "age_s": 90.0,
        "wires": {"shm": counters},
    }
    return {
        "node": "n",
        "looked_at": at,
        "uptime_s": 7300.0,
        "wires": {"shm": {"open": True}, "ibv": {"open": False, "reason": "no device"}},
        "totals": {"shm": counters},
        "sessions": [session],
        "sessions_open": 3,
        "sessions_opened": 5,
        "sessions_ended": {"closed": 1, "resume_timeout": 1},
        "refused": {"credentials": 4},
        "regions": 2,
        **more,
    }


def test_rates_cover_the_time_between_two_statuses():
    """Rates and latencies are differences; control characters in the name of a peer are replaced."""
    before = _status(10.0, 100, [[1024, 90], [2048, 10]])
    now = _status(12.0, 300, [[1024, 90], [2048, 208], [4096, 2]])
    rates = top_view.compute_rates(before, now)
    assert rates["sessions"]["a1"]["receives"] == 100
    assert rates["sessions"]["a1"]["in_bytes"] == 10_000
    assert rates["sessions"]["a1"]["latency"]["call"] == {"count": 200, "p50_ns": 2048, "p99_ns": 2048}
    shown = top_view.render(now, rates)
    assert "\x1b" not in shown
    for words in ("no ibv: no device", "rejected: credentials 4", "failed: resume_timeout 1"):
        assert words in shown
    assert "… and 2 less active sessions" in shown
    assert "2.05 µs / 2.05 µs" in shown
    assert len(top_view.render(now, rates, height=5).splitlines()) == 5


def test_a_new_session_counts_from_its_start():
    """There is no earlier status to compare with."""
    before = _status(10.0, 100, [], sessions=[])
    rates = top_view.compute_rates(before, _status(11.0, 300, [[512, 4]]))
    assert rates["sessions"]["a1"]["receives"] == 300
