"""The log of sessions: every change of state, as text and as fields, without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import verbena
from verbena import errors
from verbena.transport import Settings
from verbena.transport.observe import log

SECRET = "correct horse battery staple"
SETTINGS = Settings(
    recv_buffer_pool_size=256,
    secret=SECRET.encode(),
    connection_retries=1,
    retry_delay_ms=20,
    upgrade_delay_ms=50,
    upgrade_delay_max_ms=100,
)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Collects the logger's output, parsed as JSON, and resets the logger afterwards."""
    stream = io.StringIO()
    handler = log.configure(level="debug", style="json", stream=stream)
    yield stream
    log.logger.removeHandler(handler)
    log.logger.setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def events(stream: io.StringIO) -> list[str]:
    return [line["event"] for line in lines(stream)]


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_a_sessions_life_is_logged(written):
    """Opened, link up, lost, stepped down, stepped up, closed: with the wire, the reason and the attempt."""
    async with (
        await verbena.listen("127.0.0.1:0", config=SETTINGS) as listener,
        await verbena.connect(listener.address, config=SETTINGS) as session,
    ):
        session.break_link(rest_s=0.5)
        await until(lambda: events(written).count("step_up") == 2)  # from both ends
        key, number = session._key.hex(), f"{session.id:x}"
    found = lines(written)
    assert {line["event"] for line in found} >= {
        *("listening", "session_opened", "link_up", "link_lost", "dial_failed"),
        *("step_down", "step_up", "session_closed"),
    }
    mine = [line for line in found if line.get("session") == number]
    lost = next(line for line in mine if line["event"] == "link_lost" and line["reason"] == "drill")
    assert (lost["wire"], lost["level"], lost["attempt"]) == ("shm", "warning", 1)
    down = next(line for line in mine if line["event"] == "step_down")
    assert (down["former"], down["wire"]) == ("shm", "iwarp")
    assert "drill" in down["reason"] or down["reason"] == "the client chose it"
    assert SECRET not in written.getvalue()
    assert key not in written.getvalue()


async def test_refusals_are_logged_without_secrets(written):
    """A refusal is logged with peer and reason, but with neither the right secret nor the wrong one."""
    wrong = "not the secret that is wanted"
    async with verbena.listen("127.0.0.1:0", config=SETTINGS) as listener:
        with pytest.raises(errors.DeniedError):
            await verbena.connect(listener.address, config=replace(SETTINGS, secret=wrong.encode()))
        await until(lambda: "hello_refused" in events(written))
    (refused,) = (line for line in lines(written) if line["event"] == "hello_refused")
    assert refused["reason"] == "credentials"
    assert refused["peer"].startswith("127.0.0.1:")
    text = written.getvalue()
    assert all(word not in text for word in (SECRET, wrong, SECRET.encode().hex()))


async def test_a_failed_session_is_logged_as_an_error(written):
    """The record has the error code of the failure."""
    brief = replace(SETTINGS, resume_timeout_s=0.3)
    async with verbena.listen("127.0.0.1:0", config=brief) as listener:
        session = await verbena.connect(listener.address, config=brief)
        (there,) = listener.sessions
        session._supervisor.close()  # no dial from now on
        await until(lambda: there.wire is not None)  # its link is attached after the client's
        there.break_link()
        await until(lambda: "session_failed" in events(written))
        await session.close()
    (failed,) = (line for line in lines(written) if line["event"] == "session_failed")
    assert (failed["level"], failed["reason"]) == ("error", "resume_timeout")


def test_nothing_is_logged_unless_configured():
    """The library does not change the program's logging unless it is configured."""
    assert [type(handler) for handler in log.logger.handlers] == [logging.NullHandler]
    assert log.logger.level == logging.NOTSET
    assert log.logger.propagate


def test_a_peers_text_cannot_forge_a_log_line():
    """Line ends and spaces in a field are quoted in both formats."""
    for style in ("text", "json"):
        stream = io.StringIO()
        handler = log.configure(level="info", style=style, stream=stream)
        try:
            log.event("hello_refused", peer="x\nERROR forged=1", reason="bad message", detail="")
        finally:
            log.logger.removeHandler(handler)
            log.logger.setLevel(logging.NOTSET)
        (line,) = stream.getvalue().splitlines()
        assert "\\nERROR" in line
        if style == "text":
            assert line.endswith('WARNING handshake rejected: peer="x\\nERROR forged=1" reason="bad message"')


def test_below_the_level_nothing_is_written():
    """Records below the level are dropped, and a second configuration replaces the first."""
    stream = io.StringIO()
    log.configure(level="info", stream=stream)
    handler = log.configure(level="error", stream=stream)
    try:
        log.event("link_lost", wire="shm")
        log.event("session_failed", reason="peer_restarted")
    finally:
        log.logger.removeHandler(handler)
        log.logger.setLevel(logging.NOTSET)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("ERROR session failed: reason=peer_restarted")
