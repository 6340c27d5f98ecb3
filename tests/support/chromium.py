"""A headless Chromium, driven by its own protocol over a pipe: opens pages, evaluates, presses keys."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # the network is cut
    "--hide-scrollbars",
)


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One window. A context manager."""

    def __init__(self, *, width: int = 1200, height: int = 1000) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        for descriptor in (ours[0], theirs[1]):
            os.set_inheritable(descriptor, True)
        found = program()
        assert found is not None
        command = [found, *OPTIONS, f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}"]
        # It reads from 3 and writes to 4.
        shell = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(ours[0], theirs[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = ours[1], theirs[0]
        self._rest = b""
        self._number = 0
        self.messages: list[str] = []  # what the page wrote to its console, and requests that failed
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, *, timeout_s: float = 40.0) -> None:
        """Returns once it is true."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(f"!!({expression})"):
            assert time.monotonic() < deadline, f"not in time: {expression}\n{self.text()[:2000]}"
            time.sleep(0.05)

    def text(self) -> str:
        """All that a reader sees."""
        return str(self.evaluate("document.body.innerText"))

    def press(self, key: str, code: str = "") -> None:
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        virtual = {"Tab": 9, "Enter": 13}.get(key, ord(key.upper()[0]))
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": virtual}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def prefer(self, scheme: str) -> None:
        """ "light" or "dark", as the reader's system would say."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """The whole page, as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        os.close(self._to)
        self._process.terminate()
        self._process.wait(20)
        os.close(self._from)
        self._folder.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            found = os.read(self._from, 1 << 20)
            assert found, "the browser has ended"
            self._rest += found
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        notes: dict[str, Callable[[dict[str, Any]], str]] = {
            "Runtime.exceptionThrown": lambda p: str(p["exceptionDetails"]),
            "Runtime.consoleAPICalled": lambda p: str(p["args"]),
            "Log.entryAdded": lambda p: str(p["entry"].get("text")),
            "Network.requestWillBeSent": lambda p: f"GET {p['request']['url']}",
        }
        note = notes.get(event.get("method", ""))
        if note is not None:
            self.messages.append(note(event["params"]))
