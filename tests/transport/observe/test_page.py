"""The node's page in a real browser without network access: figures, panels, errors, keyboard, colours."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support import browser

import verbena
from verbena import errors
from verbena.transport.observe import log


class Program:
    """A node on a thread, with traffic, a panel, a failing panel and a rejected connection."""

    def __init__(self) -> None:
        self.ready, self.stop = threading.Event(), asyncio.Event()
        self.thread = threading.Thread(target=asyncio.run, args=(self.run(),))
        self.thread.start()
        assert self.ready.wait(30)

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        settings = verbena.transport.Settings(node_name="tester", secret=b"the right secret")
        config = settings
        async with verbena.listen(
            "127.0.0.1:0", handlers={"echo": lambda r: r.payload}, config=config
        ) as end:
            node = end.node
            node.panels["Shards"] = lambda: {
                "columns": ["slots", "owner", "moves"],
                "rows": [["0-99", {"text": "<b>n1</b>", "mood": "good"}, {"progress": 0.25}]],
            }
            node.panels["Broken"] = lambda: {"fields": {"x": 1 // 0}}
            node.panels["Absent"] = lambda: None
            self.address = node.serve_metrics("127.0.0.1:0").address
            handlers = {"pong": lambda request: request.payload}
            async with verbena.connect(end.address, config=settings, handlers=handlers) as session:
                with pytest.raises(errors.DeniedError):
                    await verbena.connect(end.address, secret="a wrong secret, alas")
                region = node.allocate(4096)
                self.session = session
                self.ready.set()
                while not self.stop.is_set():
                    await session.call("echo", b"x")
                    await end.sessions[0].call("pong", b"x")
                    await session.read(region.remote[:64])
                    await asyncio.sleep(0.005)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(30)


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    running = Program()
    yield running
    running.close()


@pytest.fixture(scope="module")
def window(program: Program) -> Iterator[browser.Browser]:
    if browser.PROGRAM is None:
        pytest.skip(browser.REASON)
    with browser.Browser() as opened:
        opened.open(f"http://{program.address}/")
        yield opened


def get(address: str, path: str) -> tuple[Any, Any]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        return answer.headers, answer.read().decode()


def test_the_document_has_status_panels_and_errors(program: Program) -> None:
    """The document that the page reads is also usable by programs."""
    headers, body = get(program.address, "/status.json")
    found = json.loads(body)
    assert headers["Content-Type"] == "application/json"
    assert found["status"]["node"] == "tester"
    assert [panel["title"] for panel in found["panels"]] == ["Shards", "Broken"]
    assert found["panels"][1]["failure"].startswith("ZeroDivisionError")
    refused = next(error for error in found["errors"] if error["event"] == "hello_refused")
    assert refused["explanation"]["remedy"]
    assert refused["fields"]["reason"] == "credentials"


def test_the_browser_may_load_nothing_from_elsewhere(program: Program) -> None:
    headers, page = get(program.address, "/")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert "http://" not in page
    assert "https://" not in page


def test_wires_sessions_and_latencies_are_live(window: browser.Browser) -> None:
    """The client's session is shown with its wire; rates appear at the second refresh."""
    window.until("/\\d\\/s/.test(document.querySelector('#sessions-body td:last-child')?.textContent)")
    shown = window.text()
    for words in ("tester", "shm", "iwarp", "open", "connected", "the client chose it", "live"):
        assert words in shown
    row = "[...document.querySelectorAll('#wires-body tr')].find(r => r.cells[0].textContent === 'shm')"
    window.until(f"/\\d+.*\\/s/.test({row}.cells[4].textContent)")
    assert "call over shm" in shown
    assert window.evaluate("document.querySelectorAll('#latency-body svg rect[height]').length") > 5


def test_panels_are_drawn_and_what_peers_name_is_text(window: browser.Browser) -> None:
    """Markup in a value is shown as text; a panel that failed shows its error, and the others stay."""
    shown = window.text()
    assert "<b>n1</b>" in shown
    assert window.evaluate("document.querySelectorAll('#panels b').length") == 0
    assert window.evaluate("document.querySelector('#panels progress').value") == 0.25
    assert "ZeroDivisionError" in shown
    assert "Absent" not in shown


def test_errors_are_explained_and_stay_open(window: browser.Browser) -> None:
    """An explanation that was opened stays open after a refresh."""
    window.until("document.querySelector('#errors-body summary')")
    window.evaluate("document.querySelector('#errors-body summary').click()")
    looks = "document.getElementById('about').textContent"
    before = window.evaluate(looks)
    window.evaluate("look()")
    window.until("document.querySelector('#errors-body details').open")
    assert "Remedy:" in window.text()
    assert before


def test_the_keyboard_pauses_and_reaches_everything(window: browser.Browser) -> None:
    """p pauses and resumes; Tab moves from the skip link to the button, and Enter presses it."""
    window.press("p")
    assert window.evaluate("document.getElementById('state').textContent") == "paused"
    assert window.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    window.press("p")
    window.until("document.getElementById('state').dataset.state === 'live'")
    window.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    window.evaluate("document.querySelector('.skip').focus()")
    window.press("Tab")
    assert window.evaluate("document.activeElement.id") == "pause"
    window.press("Enter")
    assert window.evaluate("document.getElementById('state').textContent") == "paused"
    window.press("Enter")
    window.until("document.getElementById('state').dataset.state === 'live'")


def test_light_and_dark_follow_the_readers_system(window: browser.Browser) -> None:
    """Text and background colours are exchanged, with a contrast of at least 7 to 1 in both schemes."""
    for scheme in ("light", "dark"):
        window.prefer(scheme)
        colours = window.evaluate(
            "(s => [s.color, s.backgroundColor].map(c => c.match(/\\d+/g).slice(0, 3).map(Number)))"
            "(getComputedStyle(document.body))"
        )
        ink, paper = (_luminance(colour) for colour in colours)
        assert (ink < paper) == (scheme == "light")
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7


def test_nothing_was_asked_of_others_and_nothing_complained(
    window: browser.Browser, program: Program
) -> None:
    """After all tests above: no exception, no refused request, and only requests to this address."""
    asked = {url.split("/")[2] for url in window.requests if url.startswith("http")}
    assert asked == {program.address}
    assert [failure for failure in window.failures if "404" not in failure] == []  # favicon.ico


def test_recent_events_are_bounded() -> None:
    """The page's list and its texts stay short, whatever unauthenticated peers send."""
    for number in range(3 * log.MAX_RECENT):
        log.event("hello_refused", peer="x" * 10_000, reason="credentials", attempt=number)
    kept = log.recent()
    assert len(kept) == log.MAX_RECENT
    assert kept[0].fields["attempt"] == 3 * log.MAX_RECENT - 1
    assert len(str(kept[0].fields["peer"])) == log.MAX_FIELD_LENGTH
    assert len(log.recent(5)) == 5


def _luminance(colour: list[int]) -> float:
    parts = [part / 255 for part in colour]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
