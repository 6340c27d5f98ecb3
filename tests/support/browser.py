"""A headless Chromium without network access, driven through its DevTools protocol over a pipe: opens pages,
evaluates JavaScript, presses keys, takes screenshots."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REASON = "chromium is not installed"
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no network access
    "--hide-scrollbars",
)
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9}
READY = "document.documentElement?.dataset.ready === 'yes'"  # Verbena's pages set it after the first drawing


class Browser:
    """One browser page. A context manager. Several threads may send commands at once."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        """The addresses that the page has asked for."""
        self.failures: list[str] = []
        """Exceptions, what was written to the console as an error, and what was refused to be loaded."""
        self._folder = tempfile.TemporaryDirectory(prefix="verbena-browser-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        assert PROGRAM is not None
        command = [PROGRAM, *OPTIONS, f"--user-data-dir={self._folder.name}"]
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        shell = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(ours[0], theirs[1]),
            env={**os.environ, "TMPDIR": self._folder.name},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = ours[1], theirs[0]
        self._lock = threading.Lock()
        self._rest = b""
        self._number = 0
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends one command of the protocol and returns its answer."""
        with self._lock:
            self._number += 1
            message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
            if self._session:
                message["sessionId"] = self._session
            os.write(self._to, json.dumps(message).encode() + b"\0")
            while (answer := self._next()).get("id") != self._number:
                self._note(answer)
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        result: dict[str, Any] = answer["result"]
        return result

    def open(
        self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False, ready: str = READY
    ) -> None:
        """Opens an address, and returns when the page is `ready`."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        self.prefer("dark" if dark else "light")
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=url)
        self.until(ready)

    def evaluate(self, expression: str) -> Any:
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, *, timeout_s: float = 40.0) -> None:
        """Returns once the expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self._holds(expression):
            assert time.monotonic() < deadline, f"not in time: {expression}\n{self.text()[:2000]}"
            time.sleep(0.02)

    def text(self) -> str:
        """The visible text of the page."""
        return str(self.evaluate("document.body.innerText"))

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
        )
        return found

    def press(self, key: str) -> None:
        event = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def prefer(self, scheme: str) -> None:
        """Sets the preferred colour scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot as PNG: of the whole page, or of the visible part."""
        clip: dict[str, Any] = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            area = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            clip = {"clip": area, "captureBeyondViewport": True}
        shot = self.ask("Page.captureScreenshot", format="png", **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        os.close(self._to)
        self._process.terminate()
        self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):  # child processes write into the folder until they end
            os.killpg(self._process.pid, signal.SIGKILL)
        os.close(self._from)
        self._folder.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.evaluate(f"!!({expression})"))
        except RuntimeError as error:
            if "context" in str(error):  # the page was replaced meanwhile
                return False
            raise

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            found = os.read(self._from, 1 << 20)
            assert found, "the browser has ended"
            self._rest += found
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case "Runtime.exceptionThrown":
                self.failures.append(str(given["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.failures.append(str(given["args"]))
            case "Log.entryAdded" if given["entry"]["level"] == "error":
                self.failures.append(given["entry"]["text"])


class Aside:
    """An async browser, for tests whose own event loop serves the page: each method runs in a thread and is
    awaited. An async context manager."""

    def __init__(self) -> None:
        self._browser: Browser

    async def __aenter__(self) -> Aside:
        self._browser = await asyncio.to_thread(Browser)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self._browser.close)

    @property
    def failures(self) -> list[str]:
        return self._browser.failures

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._browser, name)
        return lambda *given, **named: asyncio.to_thread(method, *given, **named)
