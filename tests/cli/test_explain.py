"""`verbena explain`: names, numbers and lines of logs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verbena.cli.explanations.foreign import FOREIGN
from verbena.cli.explanations.recognise import recognise
from verbena.errors import EXPLANATIONS, WcStatus, setup_error
from verbena.registry import errors

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("text", ["RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR", "retry_exc", "12", " 12\n"])
def test_a_status_is_known_by_any_of_its_names(text: str) -> None:
    assert recognise(text) == ["RETRY_EXC_ERR"]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("Error: No RDMA devices found", ["no_device"]),
        ("Error: RDMA connection timeout after 5000ms", ["connect_timeout"]),
        ("Error: ibv_reg_mr failed: Cannot allocate memory", ["memlock"]),
        ("Error: Work completion error: IBV_WC_RETRY_EXC_ERR", ["RETRY_EXC_ERR"]),
        ("Completion with error at server: status = 13", ["RNR_RETRY_EXC_ERR"]),
        ("mlx5: wc.status: 10 vendor_err 0x88", ["REM_ACCESS_ERR"]),
        ("transport retry counter exceeded on qp 0x1b", ["RETRY_EXC_ERR"]),
        (
            "local protection error (4), then Work Request Flushed Error",
            ["LOC_PROT_ERR", "WR_FLUSH_ERR"],
        ),
        ("bind: Address already in use", ["address_in_use"]),
        ("RDMA_CM_EVENT_REJECTED, status 28", ["rejected"]),
        ("connected to 10.0.0.12:7471 in 12 ms, status: ok", []),
    ],
)
def test_lines_of_logs_are_recognised(line: str, codes: list[str]) -> None:
    """A number alone in a text is not a status."""
    assert recognise(line) == codes


def test_every_error_of_verbena_is_recognised_from_its_own_text() -> None:
    """The text is the exception's own message."""
    for code in EXPLANATIONS:
        if code not in WcStatus.__members__:
            first = str(setup_error(code, operation="connect", peer="db1")).splitlines()[0]
            assert code in recognise(first), first


def test_messages_of_ibv_wc_status_str_are_recognised() -> None:
    for status in WcStatus:
        assert recognise(f"IBV_WC_{status.name}") == [status.name]


def test_a_status_is_explained_in_order(verbena: Run) -> None:
    """What happened, causes by likelihood, checks, remedy, class."""
    printed = verbena("explain", "12").stdout
    parts = ["acknowledged nothing", "causes, likeliest first", "1. the peer's process", "checks", "remedy"]
    places = [printed.index(part) for part in parts]
    assert places == sorted(places)
    assert printed.rstrip().endswith("errors.BrokenLinkError")


def test_a_log_on_standard_input_is_explained_each_failure_once() -> None:
    log = "ok\nIBV_WC_RNR_RETRY_EXC_ERR\nretry\nIBV_WC_RNR_RETRY_EXC_ERR\nno RDMA device\n"
    done = subprocess.run(
        [sys.executable, "-m", "verbena", "explain", "--json", "-"],
        input=log,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [row["code"] for row in found] == ["RNR_RETRY_EXC_ERR", "no_device"]
    assert found[0]["status"] == 13
    assert found[0]["checks"]


def test_unknown_text_exits_with_status_1(verbena: Run) -> None:
    done = verbena("explain", "all", "is", "well", status=1)
    assert done.stdout == ""
    assert "no known failure" in done.stderr
    assert "RETRY_EXC_ERR" in verbena("explain", "--list").stdout
    verbena("explain", status=2)


def registry_codes() -> list[str]:
    """All error codes of the registry."""
    source = Path(errors.__file__).read_text()
    return sorted(set(re.findall(r'"([A-Z]{4}[A-Z_]+)"', source)))


CM_EVENTS = (
    "ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR"
    " UNREACHABLE REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE"
    " TIMEWAIT_EXIT"
)
DEVICE_EVENTS = (
    "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL"
    " PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED"
    " CLIENT_REREGISTER GID_CHANGE"
)
ERRNOS = (
    "EPERM ENOENT EIO EAGAIN ENOMEM EACCES EBUSY ENODEV EINVAL EMFILE ENFILE ENOSPC ENOSYS EOPNOTSUPP"
    " EADDRINUSE EADDRNOTAVAIL ENETUNREACH ECONNRESET ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH EREMOTEIO"
)


@pytest.mark.parametrize(
    "name",
    [
        *(f"RDMA_CM_EVENT_{name}" for name in CM_EVENTS.split()),
        *(f"IBV_EVENT_{name}" for name in DEVICE_EVENTS.split()),
        *ERRNOS.split(),
        *(error for error in registry_codes()),
    ],
)
def test_every_event_errno_and_code_of_the_registry_is_explained(name: str) -> None:
    """Each is recognised alone and within a line of a log."""
    (code,) = recognise(name)
    row = FOREIGN.get(code) or EXPLANATIONS[code]
    assert row.what
    assert row.causes
    assert row.remedy
    assert code in recognise(f"17:03:11 worker[7]: failed with error: {name}, giving up")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("(error) MOVED 12182 127.0.0.1:7001", "MOVED"),
        ("Error from server: CLUSTERDOWN Hash slot not served", "CLUSTERDOWN"),
        ("-READONLY You can't write against a read only replica.", "READONLY"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ('{"errors": [{"code": "DENIED", "message": "…"}]}', "DENIED"),
        ("rdma_create_qp: Invalid argument", "EINVAL"),
    ],
)
def test_replies_of_the_store_and_errno_messages_are_recognised(line: str, code: str) -> None:
    assert recognise(line) == [code]


def test_plain_words_are_not_taken_for_replies() -> None:
    assert recognise("we ASK you to wait, LOADING the lorry") == []


def test_foreign_codes_have_no_exception_class(verbena: Run) -> None:
    done = verbena("explain", "--json", "RDMA_CM_EVENT_DISCONNECTED")
    (found,) = json.loads(done.stdout)
    assert found["raises"] is None
    assert "in Python" not in verbena("explain", "ENOMEM").stdout
